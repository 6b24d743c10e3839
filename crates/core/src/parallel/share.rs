//! What one rank builds where the model itself is split: the same family with a smaller config.

use crate::building::Ends;
use crate::job::JobErrorKind;
use crate::job::keys;
use serde_json::{Value, json};

use crate::job::{Fields, JobError, JobSpec, ModelSpec, Strategy, TensorPlan};

/// The model that the simulated rank holds.
///
/// # Errors
/// When the model cannot be split that way.
pub(crate) fn share_of_rank(job: &JobSpec) -> Result<ModelSpec, JobError> {
    let mut model = job.model.clone();
    let is_split = matches!(job.parallel.strategy, Strategy::TensorParallel { .. } | Strategy::PipelineParallel { .. });
    if is_split && model.facts().has_experts {
        let problem = format!("`{}`: splitting a mixture of experts over ranks is not simulated", model.model_type);
        return Err(JobError::new(problem)
            .about(&[keys::PARALLEL])
            .hint("ddp and fsdp2 keep layers whole")
            .or_rehearse());
    }
    match job.parallel.strategy {
        Strategy::TensorParallel { size, plan } => split_width(&mut model, size, plan)?,
        Strategy::PipelineParallel { stages, .. } => {
            split_depth(&mut model, stages, job.parallel.place_in_pipeline().1)?;
        }
        _ => {}
    }
    Ok(model)
}

/// Heads and the inner width of MLPs are divided; norms and everything of the hidden size stay whole. Of Megatron-LM the vocabulary is
/// divided too (vocabulary parallel embedding and loss), of transformers the head's weight alone, which is no size of the config's.
fn split_width(model: &mut ModelSpec, size: u64, plan: TensorPlan) -> Result<(), JobError> {
    if !model.facts().divides_heads {
        let problem = format!("tensor parallelism of `{}` is not simulated", model.model_type);
        return Err(JobError::new(problem)
            .about(&[keys::PARALLEL])
            .hint("its heads have no dimension of their own in the config")
            .or_rehearse());
    }
    let heads = needed_size(&model.config, "num_attention_heads")?;
    let key_value_heads = read_size(&model.config, "num_key_value_heads").unwrap_or(heads);
    let head_dim = match read_size(&model.config, "head_dim") {
        Some(head_dim) => head_dim,
        None => needed_size(&model.config, "hidden_size")? / heads.max(1),
    };
    let inner = needed_size(&model.config, "intermediate_size")?;
    let vocabulary = needed_size(&model.config, "vocab_size")?;
    let gathers = plan == TensorPlan::Transformers;
    let divided = [
        ("num_attention_heads", heads, true),
        ("intermediate_size", inner, true),
        ("num_key_value_heads", key_value_heads, gathers),
        ("vocab_size", vocabulary, gathers),
    ];
    for (key, whole, _) in divided.into_iter().filter(|(.., must)| *must) {
        if size == 0 || whole % size != 0 {
            return Err(JobError::new(format!("`{key}` {whole} does not divide by {size} tensor parallel ranks"))
                .about(&[keys::PARALLEL, keys::WORLD_SIZE]));
        }
    }
    let config = &mut model.config.0;
    config.insert("num_attention_heads".to_owned(), json!(heads / size));
    // Fewer key-value heads than ranks are repeated, one to a rank.
    config.insert("num_key_value_heads".to_owned(), json!((key_value_heads / size).max(1)));
    config.insert("head_dim".to_owned(), json!(head_dim));
    config.insert("intermediate_size".to_owned(), json!(inner / size));
    if !gathers {
        config.insert("vocab_size".to_owned(), json!(vocabulary.div_ceil(size)));
    }
    Ok(())
}

/// The model of one stage that PyTorch's schedules run, and which ends of the whole one it has. Each end has its own matrix of the
/// vocabulary, tied or not.
///
/// # Errors
/// When there are fewer layers than stages.
pub(crate) fn stage_of_pipeline(job: &JobSpec, stages: u64, stage: u64) -> Result<(ModelSpec, Ends), JobError> {
    let mut model = job.model.clone();
    keep_layers(&mut model, stages, stage)?;
    let ends = Ends { front: stage == 0, back: stage + 1 == stages };
    if stages > 1 {
        model.config.0.insert("tie_word_embeddings".to_owned(), json!(false));
    }
    Ok((model, ends))
}

/// The layers of one stage. One matrix of the vocabulary stays on the first stage, as the embedding, and on the last, as
/// the head; a stage between them has none.
fn split_depth(model: &mut ModelSpec, stages: u64, stage: u64) -> Result<(), JobError> {
    keep_layers(model, stages, stage)?;
    let config = &mut model.config.0;
    config.insert("tie_word_embeddings".to_owned(), json!(true));
    if stage != 0 && stage + 1 != stages {
        config.insert("vocab_size".to_owned(), json!(1));
        config.remove("pad_token_id");
    }
    Ok(())
}

/// The config of a model with the layers of one stage alone.
fn keep_layers(model: &mut ModelSpec, stages: u64, stage: u64) -> Result<(), JobError> {
    let key = model.facts().layers_key;
    let layers = needed_size(&model.config, key)?;
    if stages == 0 || stages > layers || stage >= stages {
        let problem = format!("`{key}` {layers} does not make {stages} pipeline stages");
        return Err(JobError::new(problem)
            .about(&[keys::PARALLEL, keys::WORLD_SIZE, keys::PIPELINE_STAGES_PER_RANK])
            .hint("each stage needs at least one layer"));
    }
    let (each, more) = (layers / stages, layers % stages);
    let first = stage * each + stage.min(more);
    let count = each + u64::from(stage < more);
    let config = &mut model.config.0;
    if let Some(Value::Array(types)) = config.get_mut("layer_types") {
        *types = types.iter().skip(first as usize).take(count as usize).cloned().collect();
    }
    config.insert(key.to_owned(), json!(count));
    Ok(())
}

fn read_size(config: &Fields, key: &str) -> Option<u64> {
    config.get(key).and_then(Value::as_u64)
}

fn needed_size(config: &Fields, key: &str) -> Result<u64, JobError> {
    read_size(config, key).ok_or_else(|| {
        JobError::of_kind(JobErrorKind::Model, format!("splitting the model needs `{key}` in its config"))
    })
}
