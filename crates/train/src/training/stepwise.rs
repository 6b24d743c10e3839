//! The loop of trainings that make a step at a time (GRPO, a node of a swarm, HRM): what is told, evaluated and saved between steps.

use tonnage_core::job::TrainingSpec;

use super::event::{Event, Held};
use crate::error::TrainError;

/// The state appears in the first step, from the second on they allocate the same; the third shows that it stays.
pub(super) const WARM_UP: u64 = 3;

/// A training in steps.
pub(crate) trait Stepwise {
    /// Steps that are done.
    fn step(&self) -> u64;
    /// Steps of the whole training.
    fn steps(&self) -> u64;
    fn spec(&self) -> &TrainingSpec;
    /// Makes the next step; false where it was asked to stop within it, and the step was not made.
    fn one_step(&mut self, stops: &dyn Fn() -> bool, observe: &mut dyn FnMut(Event)) -> Result<bool, TrainError>;
    /// Whether it is asked to end after the step that was made; of several ranks all say the same.
    fn is_asked_to_end(&self, stops: &dyn Fn() -> bool) -> bool {
        stops()
    }
    fn held(&self) -> Result<Held, TrainError>;
    fn report(&mut self, is_last: bool, observe: &mut dyn FnMut(Event));
    fn evaluate(&mut self, observe: &mut dyn FnMut(Event)) -> Result<(), TrainError>;
    fn save(&mut self, observe: &mut dyn FnMut(Event)) -> Result<(), TrainError>;
}

/// Trains to the end, or until `stops` says so, which is asked after every step; then a checkpoint is written too. Whether it was stopped.
pub(crate) fn make_steps(
    training: &mut dyn Stepwise,
    stops: &dyn Fn() -> bool,
    observe: &mut dyn FnMut(Event),
) -> Result<bool, TrainError> {
    let (first, steps) = (training.step(), training.steps());
    let (mut was_stopped, mut measured) = (false, false);
    while training.step() < steps && !was_stopped {
        if !training.one_step(stops, observe)? {
            return Ok(true);
        }
        let step = training.step();
        was_stopped = training.is_asked_to_end(stops) && step < steps;
        let is_last = was_stopped || step == steps;
        if !measured && (step - first >= WARM_UP || is_last) {
            measured = true;
            observe(Event::Measured(training.held()?));
        }
        training.report(is_last, observe);
        let spec = training.spec();
        let saves = is_last || step.is_multiple_of(spec.save_steps);
        let evaluates = spec.eval_steps.map_or(saves, |every| is_last || step.is_multiple_of(every));
        if evaluates && !was_stopped {
            training.evaluate(observe)?;
        }
        if saves {
            training.save(observe)?;
        }
    }
    Ok(was_stopped)
}
