//! Messages that wait for further lines, and what is kept of them.

use super::Scanner;
use crate::finding::Finding;
use crate::line::Line;
use crate::signature::SIGNATURES;
use crate::waiting::Waiting;

impl Scanner {
    /// Gives the line to the messages of the same rank that wait for it.
    pub(super) fn go_on(&mut self, line: &Line) {
        let mut at = 0;
        while let Some(waiting) = self.waiting.get_mut(at) {
            if waiting.line(line) {
                let done = self.waiting.remove(at);
                self.keep(done);
            } else {
                at += 1;
            }
        }
    }

    pub(super) fn keep(&mut self, waiting: Waiting) {
        let name = SIGNATURES.get(waiting.signature).map_or("", |signature| signature.name);
        // What is only counted says nothing new.
        if !self.kept.is_full(name, waiting.finding.rank) {
            self.setting.learn(&waiting.text);
        }
        waiting.into_finding().into_iter().for_each(|finding| self.keep_finding(finding));
    }

    pub(super) fn keep_finding(&mut self, finding: Finding) {
        let (steps, line) = (finding.steps.clone(), finding.line);
        if self.kept.add(finding) {
            self.life.watch(&self.head, line);
            steps.into_iter().for_each(|step| self.life.step(step));
        } else {
            self.life.watch_far(&self.head, line);
        }
    }
}
