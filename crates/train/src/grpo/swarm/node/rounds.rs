//! A round: own groups, those of others, and one update over what can be learnt from.

use std::rc::Rc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use tonnage_torch::Device;
use tonnage_verifiable::{Split, seed_of};

use super::Node;
use crate::error::TrainError;
use crate::grpo::asker::Asked;
use crate::grpo::evaluate::pay;
use crate::grpo::generate::generate;
use crate::grpo::pay::{Pay, give_advantages, is_dead};
use crate::grpo::rollout::{Row, padded_left};
use crate::grpo::swarm::clock::Clock;
use crate::grpo::swarm::lease::wait_for_lease;
use crate::grpo::swarm::likeness::shown_weights;
use crate::grpo::swarm::loss::Batch;
use crate::grpo::swarm::pool::{PoolCounts, Receiver, choose_groups, learnable_rows};
use crate::grpo::swarm::report::SwarmNote;
use crate::grpo::tensors::whole_numbers;
use crate::tensor::caught;
use crate::training::{Event, host_number};

/// What a round came to.
#[derive(Default)]
pub(super) struct Round {
    pub pay: Pay,
    pub training_set: f64,
    pub loss: Option<f64>,
    pub groups: u64,
    pub live_groups: u64,
    pub counts: PoolCounts,
    pub completion_tokens: f64,
    pub truncated: f64,
}

impl Node<'_> {
    /// A round; `None` where it was stopped while it waited, and nothing of it counts.
    pub(super) fn one_round(
        &mut self,
        stops: &dyn Fn() -> bool,
        observe: &mut dyn FnMut(Event),
    ) -> Result<Option<Round>, TrainError> {
        let settings = self.parts.settings;
        self.optimizer.set_learning_rate(settings.grpo.plain.learning_rate(self.step, settings.grpo.steps));
        if !self.reads_values() {
            self.rehearse_round()?;
            return Ok(Some(Round::default()));
        }
        let began = Instant::now();
        let mut own = self.own_rows().map_err(|error| self.placed(error))?;
        let group = usize::try_from(settings.spec.num_generations).unwrap_or(usize::MAX);
        let pay = give_advantages(&mut own, group, settings.grpo.how.scale_rewards);
        let sampled = began.elapsed().as_secs_f64();
        let mut round = Round { pay, ..Round::of_rows(&own, group) };
        let began = Instant::now();
        let Some(foreign) = self.exchange_groups(&own, &mut round, stops, observe)? else { return Ok(None) };
        let waited = began.elapsed().as_secs_f64();
        let began = Instant::now();
        let tokens: u64 = own.iter().map(|row| row.tokens.len() as u64).sum();
        let rewards: Vec<f64> = own.iter().chain(foreign.iter().flatten()).map(|row| row.reward).collect();
        round.training_set = rewards.iter().sum::<f64>() / rewards.len().max(1) as f64;
        let mut rows: Vec<Row> = own.into_iter().filter(|row| row.advantage != 0.0).collect();
        rows.extend(foreign.into_iter().flat_map(|rows| learnable_rows(rows, settings.how.foreign_advantages)));
        if !rows.is_empty() {
            round.loss = Some(self.train_on(&rows).map_err(|error| self.placed(error))?);
        }
        self.progress.cumulative += round.pay.mean;
        self.progress.refused_groups += round.counts.refused;
        self.progress.cut += round.counts.cut;
        self.progress.tokens_generated += tokens;
        self.progress.seconds_sampling += sampled;
        self.progress.seconds_waiting += waited;
        self.progress.seconds_training += began.elapsed().as_secs_f64();
        Ok(Some(round))
    }

    /// Its own groups, paid.
    fn own_rows(&self) -> Result<Vec<Row>, TrainError> {
        let spec = &self.parts.settings.spec;
        self.parts.model.train(false);
        let mut asked: Vec<Rc<Asked>> = Vec::new();
        for slot in 0..spec.local_questions {
            let one = Rc::new(self.parts.asker.ask(Split::Training, self.step, slot)?);
            asked.extend((0..spec.num_generations).map(|_| Rc::clone(&one)));
        }
        let most = usize::try_from(spec.generate_rows.max(1)).unwrap_or(usize::MAX);
        let mut rows = Vec::new();
        for questions in asked.chunks(most) {
            rows.extend(self.sampler(true).complete(questions)?);
        }
        pay(&mut rows, None)?;
        self.parts.model.train(true);
        Ok(rows)
    }

    /// Publishes, waits for the others, and chooses of theirs; `None` where it was stopped.
    fn exchange_groups(
        &mut self,
        own: &[Row],
        round: &mut Round,
        stops: &dyn Fn() -> bool,
        observe: &mut dyn FnMut(Event),
    ) -> Result<Option<Vec<Vec<Row>>>, TrainError> {
        let weights = shown_weights(self.optimizer.parameters())?;
        let Some(exchange) = &self.parts.exchange else { return Ok(Some(Vec::new())) };
        let settings = self.parts.settings;
        let (how, spec) = (&settings.how, &settings.spec);
        let group = usize::try_from(spec.num_generations).unwrap_or(usize::MAX);
        let at_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as u64);
        exchange.publish(self.step, own, group, &weights, at_ms)?;
        let clock = Clock { name: &exchange.name, deadline: how.deadline(), quorum: how.quorum };
        let Some(received) = exchange.receive(self.step, &clock, stops)? else { return Ok(None) };
        self.progress.ignored_files += received.ignored;
        self.progress.refused_groups += received.refused;
        self.progress.swarm_cumulative += round.pay.mean + received.rewards;
        let others = received.alike(&self.began_with, &weights);
        if !(others.is_empty() || self.said.identical) {
            self.said.identical = true;
            observe(Event::Swarm(SwarmNote::Identical { others, round: self.step }));
        }
        if !received.missing.is_empty() {
            observe(Event::Swarm(SwarmNote::Missing { names: received.missing.clone(), round: self.step }));
        }
        let receiver = Receiver {
            asker: self.parts.eval_asker,
            group,
            completion_len: usize::try_from(spec.completion_len).unwrap_or(usize::MAX),
            end: self.parts.end,
            scale: settings.grpo.how.scale_rewards,
        };
        let mut pool = Vec::new();
        for group in &received.groups {
            match receiver.rows_of(group, &mut round.counts)? {
                Some(rows) => pool.push(rows),
                None => round.counts.refused += 1,
            }
        }
        let wanted = usize::try_from(spec.external_questions).unwrap_or(usize::MAX);
        let seed = seed_of(&exchange.name, 1, self.step, settings.grpo.plain.training.seed);
        let chosen = choose_groups(pool, how.filter, usize::MAX, seed);
        round.counts.groups = chosen.len() as u64;
        if chosen.len() < wanted && !self.said.small_pool && self.step > 0 {
            self.said.small_pool = true;
            let (pool, wanted) = (chosen.len() as u64, wanted as u64);
            observe(Event::Swarm(SwarmNote::SmallPool { pool, wanted, round: self.step }));
        }
        let chosen: Vec<Vec<Row>> = chosen.into_iter().take(wanted).collect();
        round.counts.chosen = chosen.len() as u64;
        exchange.forget_old(self.step, how.keep_rounds)?;
        Ok(Some(chosen))
    }

    /// Forward, backward and update over all rows at once.
    fn train_on(&mut self, rows: &[Row]) -> Result<f64, TrainError> {
        let prompts: Vec<&[u32]> = rows.iter().map(|row| row.asked.tokens.as_slice()).collect();
        let (left, left_mask, width) = padded_left(&prompts, self.parts.end, None);
        let width = usize::try_from(width).unwrap_or(1).max(1);
        let longest = rows.iter().map(|row| row.tokens.len()).max().unwrap_or(1).max(1);
        let (mut ids, mut mask) = (Vec::new(), Vec::new());
        for (row, (prompt, prompt_mask)) in rows.iter().zip(left.chunks(width).zip(left_mask.chunks(width))) {
            ids.extend_from_slice(prompt);
            mask.extend_from_slice(prompt_mask);
            ids.extend(row.tokens.iter().map(|token| i64::from(*token)));
            mask.extend(row.tokens.iter().map(|_| 1));
            let padding = longest - row.tokens.len();
            ids.extend(std::iter::repeat_n(i64::from(self.parts.end), padding));
            mask.extend(std::iter::repeat_n(0, padding));
        }
        let advantages: Vec<f32> = rows.iter().map(|row| row.advantage as f32).collect();
        let loss = self.update_once(&ids, &mask, &advantages, longest as u64)?;
        self.progress.updates += 1;
        self.progress.tokens_trained += rows.iter().map(|row| row.tokens.len() as u64).sum::<u64>();
        if loss.is_finite() {
            return Ok(loss);
        }
        let problem = format!("the loss of round {} is {loss}: the training has diverged", self.step + 1);
        Err(TrainError::refused_with(problem, "a lower learning_rate, or precision amp-bf16"))
    }

    fn update_once(
        &mut self,
        ids: &[i64],
        mask: &[i64],
        advantages: &[f32],
        completion_len: u64,
    ) -> Result<f64, TrainError> {
        let settings = &self.parts.settings;
        self.parts.model.set_checkpointing(settings.grpo.checkpoints);
        let _lease = wait_for_lease()?;
        let context = self.policy.context();
        let batch = caught(|| Batch::new(context, ids, mask, advantages, completion_len))?;
        let loss = caught(|| self.objective.loss(&batch))?;
        self.parts.torch.backward(loss.loss.inner())?;
        self.optimizer.step()?;
        self.optimizer.zero_grad()?;
        let value = if self.reads_values() { host_number(loss.loss.inner())? } else { 0.0 };
        drop((batch, loss));
        self.parts.model.set_checkpointing(false);
        if settings.spec.empty_cache && self.parts.device != Device::Cpu {
            self.parts.torch.empty_cache()?;
        }
        Ok(value)
    }

    /// The calls of a round at full length, as the estimate has them.
    pub(super) fn rehearse_round(&mut self) -> Result<(), TrainError> {
        let spec = self.parts.settings.spec.clone();
        self.parts.model.train(false);
        self.parts.model.set_checkpointing(false);
        let rows = spec.local_questions * spec.num_generations;
        let mut done = 0;
        while done < rows {
            let rows = spec.generate_rows.max(1).min(rows - done);
            done += rows;
            let _no_grad = self.parts.torch.no_grad();
            let sampler = self.sampler(true);
            caught(|| {
                let context = self.policy.context();
                let numbers = vec![1; usize::try_from(rows * spec.prompt_len).unwrap_or(usize::MAX)];
                let ids = whole_numbers(context, &numbers, &[rows, spec.prompt_len]);
                let mask = whole_numbers(context, &numbers, &[rows, spec.prompt_len]);
                generate(&self.policy, &ids, &mask, &sampler.how);
            })?;
        }
        self.parts.model.train(true);
        let rows = usize::try_from(spec.train_rows).unwrap_or(usize::MAX);
        let numbers = vec![1; usize::try_from(spec.prompt_len + spec.completion_len).unwrap_or(usize::MAX) * rows];
        self.update_once(&numbers, &numbers, &vec![1.0; rows], spec.completion_len).map(drop)
    }
}

impl Round {
    fn of_rows(own: &[Row], group: usize) -> Self {
        let rows = own.len().max(1) as f64;
        let is_live = |rows: &&[Row]| !is_dead(&rows.iter().map(|row| row.reward).collect::<Vec<_>>());
        Self {
            groups: own.chunks(group.max(1)).count() as u64,
            live_groups: own.chunks(group.max(1)).filter(is_live).count() as u64,
            completion_tokens: own.iter().map(|row| row.tokens.len() as f64).sum::<f64>() / rows,
            truncated: own.iter().filter(|row| row.is_truncated).count() as f64 / rows,
            ..Self::default()
        }
    }
}
