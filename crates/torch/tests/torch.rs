//! The engine against a real libtorch: what Python's PyTorch computes, saves and allocates, it does too.
//!
//! `TONNAGE_TORCH` names the libtorch. One test a process would load it several times, so they share it.

mod support;

use std::os::fd::IntoRawFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tonnage_torch::{
    Add, Argument, Buckets, Device, ErrorKind, Group, ScalarType, Serving, Store, Tensor, Torch, TorchError, Transport,
    operator,
};

fn load() -> &'static Torch {
    support::load_torch(false)
}

/// What several ranks need, compiled.
fn ranks_library() -> PathBuf {
    let (found, shim) = support::compile_shim();
    shim.ranks(&found, &mut |report| eprintln!("{report}")).expect("what ranks need compiles")
}

/// The generator of the CPU is the whole process's: tests that seed it run one after another.
fn alone() -> MutexGuard<'static, ()> {
    static RANDOM: Mutex<()> = Mutex::new(());
    RANDOM.lock().unwrap_or_else(PoisonError::into_inner)
}

fn mul(a: &Tensor, b: &Tensor) -> Result<Tensor, TorchError> {
    a.torch().call(operator!("mul", "Tensor"), &[a.into(), b.into()])?.tensor()
}

fn sum(a: &Tensor) -> Result<Tensor, TorchError> {
    a.torch().call(operator!("sum"), &[a.into()])?.tensor()
}

fn dropout(a: &Tensor) -> Result<Tensor, TorchError> {
    a.torch().call(operator!("dropout"), &[a.into(), 0.5.into(), true.into()])?.tensor()
}

#[test]
#[ignore = "needs PyTorch: TONNAGE_TORCH"]
fn operators_take_defaults_lists_dtypes_and_devices() {
    let _alone = alone();
    let torch = load();
    let x = torch.tensor(&[1.0_f32, 2.0, 3.0, 4.0], &[2, 2]).unwrap();
    // add.Tensor(self, other, *, alpha=1)
    let twice = torch.call(operator!("add", "Tensor"), &[(&x).into(), (&x).into()]).unwrap().tensor().unwrap();
    assert_eq!(twice.to_vec::<f32>().unwrap(), [2.0, 4.0, 6.0, 8.0]);
    // An int where the schema has a float: dropout(input, float p, bool train).
    let same = torch.call(operator!("dropout"), &[(&x).into(), 0_i64.into(), true.into()]).unwrap().tensor().unwrap();
    assert_eq!(same.to_vec::<f32>().unwrap(), x.to_vec::<f32>().unwrap());
    let ones = torch
        .call(operator!("ones"), &[[2, 3].into(), ScalarType::Int64.into(), Argument::Default, Device::Cpu.into()]);
    let ones = ones.unwrap().tensor().unwrap();
    assert_eq!((ones.sizes().as_slice(), ones.scalar_type().unwrap()), ([2, 3].as_slice(), ScalarType::Int64));
    let both = [x.clone(), twice];
    let joined = torch.call(operator!("cat"), &[both.as_slice().into(), 0_i64.into()]).unwrap().tensor().unwrap();
    assert_eq!(joined.sizes().as_slice(), [4, 2]);
    // More results than fit at once.
    let rows = torch.call(operator!("unbind", "int"), &[(&torch.tensor(&[0_i64; 9], &[9]).unwrap()).into()]).unwrap();
    assert_eq!(rows.tensors().len(), 9);
    // Tensor?[]: x[:, index]
    let index = torch.tensor(&[1_i64], &[1]).unwrap();
    let picked =
        torch.call(operator!("index", "Tensor"), &[(&x).into(), Argument::optional_tensors([None, Some(&index)])]);
    assert_eq!(picked.unwrap().tensor().unwrap().to_vec::<f32>().unwrap(), [2.0, 4.0]);
}

#[test]
#[ignore = "needs PyTorch: TONNAGE_TORCH"]
fn errors_are_values_with_pytorchs_text() {
    let torch = load();
    let (a, b) = (torch.tensor(&[1.0_f32; 6], &[2, 3]).unwrap(), torch.tensor(&[1.0_f32; 4], &[2, 2]).unwrap());
    let error = torch.call(operator!("mm"), &[(&a).into(), (&b).into()]).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Operator);
    assert!(
        error.text.starts_with("aten::mm: ") && error.text.contains("mat1 and mat2 shapes cannot be multiplied"),
        "{error}"
    );
    assert!(torch.call(operator!("no_such_operator"), &[]).unwrap_err().text.contains("no_such_operator"));
    let error = torch.call(operator!("relu"), &[(&a).into(), (&a).into()]).unwrap_err();
    assert!(error.text.contains("takes 1 arguments, not 2"), "{error}");
    let error = torch.call(operator!("mm"), &[(&a).into()]).unwrap_err();
    assert!(error.text.contains("`mat2` has no default"), "{error}");
    assert!(torch.tensor(&[1_i64, 2], &[3]).is_err() && torch.tensor(&[1_i64], &[-1]).is_err());
    assert!(a.to_vec::<i64>().unwrap_err().text.contains("Float32"));
    assert!(torch.memory(Device::Cpu).is_err());
}

#[test]
#[ignore = "needs PyTorch: TONNAGE_TORCH"]
fn scopes_end_with_their_values() {
    let torch = load();
    let x = torch.tensor(&[1.0_f32, 2.0], &[2]).unwrap().requiring_grad().unwrap();
    {
        let _scope = torch.no_grad();
        assert!(!mul(&x, &x).unwrap().requires_grad());
        let _inner = torch.with_grad(true);
        assert!(mul(&x, &x).unwrap().requires_grad());
    }
    assert!(torch.is_grad_enabled());
    let matrix = torch.tensor(&[1.0_f32; 4], &[2, 2]).unwrap();
    let product = || {
        torch
            .call(operator!("mm"), &[(&matrix).into(), (&matrix).into()])
            .unwrap()
            .tensor()
            .unwrap()
            .scalar_type()
            .unwrap()
    };
    {
        let _scope = torch.autocast(Device::Cpu, Some(ScalarType::Bfloat16)).unwrap();
        assert_eq!(product(), ScalarType::Bfloat16);
        let _off = torch.autocast(Device::Cpu, None).unwrap();
        assert_eq!(product(), ScalarType::Float32);
    }
    assert_eq!(product(), ScalarType::Float32);
}

#[test]
#[ignore = "needs PyTorch: TONNAGE_TORCH"]
fn gradients_accumulate_and_can_be_taken_away() {
    let torch = load();
    let x = torch.tensor(&[1.0_f32, 2.0, 3.0], &[3]).unwrap().requiring_grad().unwrap();
    for times in 1..=2 {
        torch.backward(&sum(&mul(&x, &x).unwrap()).unwrap()).unwrap();
        let expected = [2.0, 4.0, 6.0].map(|one: f32| one * times as f32);
        assert_eq!(x.grad().unwrap().unwrap().to_vec::<f32>().unwrap(), expected);
    }
    x.set_grad(None).unwrap();
    assert!(x.grad().unwrap().is_none());
    let square = mul(&x, &x).unwrap();
    let weight = torch.tensor(&[0.0_f32, 1.0, 10.0], &[3]).unwrap();
    torch.backward_with(&square, &weight, false).unwrap();
    assert_eq!(x.grad().unwrap().unwrap().to_vec::<f32>().unwrap(), [0.0, 4.0, 60.0]);
    let error = torch.backward(&square).unwrap_err();
    assert!(error.text.contains("grad can be implicitly created only for scalar outputs"), "{error}");
}

/// A loss with two dropouts, whose second half is checkpointed or not; the gradient of what went in.
fn dropped(torch: &'static Torch, checkpointed: bool) -> (Vec<f32>, Vec<f32>) {
    torch.seed(7).unwrap();
    let values: Vec<f32> = (0..64).map(|one| one as f32).collect();
    let x = torch.tensor(&values, &[64]).unwrap().requiring_grad().unwrap();
    let first = dropout(&mul(&x, &x).unwrap()).unwrap();
    let again = first.clone();
    let half = move || dropout(&mul(&mul(&again, &again)?, &again)?);
    let second = if checkpointed { torch.checkpoint(Device::Cpu, half).unwrap() } else { half().unwrap() };
    let after = dropout(&second).unwrap();
    torch.backward(&sum(&after).unwrap()).unwrap();
    (after.to_vec().unwrap(), x.grad().unwrap().unwrap().to_vec().unwrap())
}

#[test]
#[ignore = "needs PyTorch: TONNAGE_TORCH"]
fn a_checkpoint_changes_no_number() {
    let _alone = alone();
    let torch = load();
    let plain = dropped(torch, false);
    assert_eq!(dropped(torch, true), plain);
    assert!(plain.1.iter().any(|one| *one != 0.0), "some elements survive");
    // The generator goes on where the forward pass left it, not where the second run did.
    let next = |checkpointed| {
        dropped(torch, checkpointed);
        torch.random_state(Device::Cpu).unwrap().to_bytes().unwrap()
    };
    assert_eq!(next(true), next(false));
}

#[test]
#[ignore = "needs PyTorch: TONNAGE_TORCH"]
fn a_checkpoint_runs_under_the_autocast_it_had() {
    let _alone = alone();
    let torch = load();
    let run = |checkpointed: bool| {
        let x = torch.tensor(&[0.1_f32; 16], &[4, 4]).unwrap().requiring_grad().unwrap();
        let loss = {
            let _scope = torch.autocast(Device::Cpu, Some(ScalarType::Bfloat16)).unwrap();
            let lent = x.clone();
            let body = move || {
                let torch = lent.torch();
                let product = torch.call(operator!("mm"), &[(&lent).into(), (&lent).into()])?.tensor()?;
                mul(&product, &product)
            };
            let inner = if checkpointed { torch.checkpoint(Device::Cpu, body).unwrap() } else { body().unwrap() };
            assert_eq!(inner.scalar_type().unwrap(), ScalarType::Bfloat16);
            sum(&inner).unwrap()
        };
        torch.backward(&loss).unwrap();
        x.grad().unwrap().unwrap().to_vec::<f32>().unwrap()
    };
    assert_eq!(run(true), run(false));
}

#[test]
#[ignore = "needs PyTorch: TONNAGE_TORCH"]
fn a_checkpoint_that_fails_the_second_time_is_an_error_of_backward() {
    let _alone = alone();
    use std::sync::atomic::{AtomicU32, Ordering};
    static RUNS: AtomicU32 = AtomicU32::new(0);
    let torch = load();
    let failing = |how: fn() -> TorchError| {
        RUNS.store(0, Ordering::SeqCst);
        let x = torch.tensor(&[1.0_f32], &[1]).unwrap().requiring_grad().unwrap();
        let lent = x.clone();
        let body = move || if RUNS.fetch_add(1, Ordering::SeqCst) == 0 { mul(&lent, &lent) } else { Err(how()) };
        let y = torch.checkpoint(Device::Cpu, body).unwrap();
        torch.backward(&y).unwrap_err()
    };
    let own = failing(|| load().call(operator!("no_such_operator"), &[]).unwrap_err());
    assert!(own.text.contains("no_such_operator"), "{own}");
    let panicked = failing(|| panic!("on purpose"));
    assert!(panicked.text.contains("on purpose"), "{panicked}");
    // The library is whole afterwards.
    let x = torch.tensor(&[3.0_f32], &[1]).unwrap().requiring_grad().unwrap();
    torch.backward(&mul(&x, &x).unwrap()).unwrap();
    assert_eq!(x.grad().unwrap().unwrap().to_vec::<f32>().unwrap(), [6.0]);
}

#[test]
#[ignore = "needs PyTorch: TONNAGE_TORCH"]
fn random_states_and_bytes_come_back() {
    let _alone = alone();
    let torch = load();
    torch.seed(3).unwrap();
    let random = || torch.call(operator!("rand"), &[[5].into()]).unwrap().tensor().unwrap().to_vec::<f32>().unwrap();
    let state = torch.random_state(Device::Cpu).unwrap();
    let first = random();
    assert_ne!(random(), first);
    torch.set_random_state(Device::Cpu, &state).unwrap();
    assert_eq!(random(), first);

    let x = torch.tensor(&[1.5_f32, -2.0], &[2]).unwrap();
    let half =
        torch.call(operator!("to", "dtype"), &[(&x).into(), ScalarType::Bfloat16.into()]).unwrap().tensor().unwrap();
    let bytes = half.to_bytes().unwrap();
    assert_eq!(bytes.len(), 4);
    let back = torch.tensor_of_bytes(&bytes, &[2], ScalarType::Bfloat16).unwrap();
    assert_eq!(back.to_bytes().unwrap(), bytes);
    back.overwrite(&[0; 4]).unwrap();
    assert_eq!(back.to_bytes().unwrap(), [0; 4]);
    assert!(back.overwrite(&[0; 3]).is_err());
}

#[test]
#[ignore = "needs PyTorch: TONNAGE_TORCH"]
fn optimizers_work_on_lists_in_place() {
    let torch = load();
    let of = |value: f32| torch.tensor(&[value; 3], &[3]).unwrap();
    let (parameters, gradients) = ([of(1.0), of(2.0)], [of(0.5), of(0.5)]);
    let (averages, squares) = ([of(0.0), of(0.0)], [of(0.0), of(0.0)]);
    let steps = [torch.tensor(&[1.0_f32], &[]).unwrap(), torch.tensor(&[1.0_f32], &[]).unwrap()];
    // _fused_adamw_(self, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps, *, lr, beta1, beta2, weight_decay, eps, amsgrad, maximize)
    let _scope = torch.no_grad();
    torch
        .call(
            operator!("_fused_adamw_"),
            &[
                parameters.as_slice().into(),
                gradients.as_slice().into(),
                averages.as_slice().into(),
                squares.as_slice().into(),
                Argument::tensors([]),
                steps.as_slice().into(),
                0.1.into(),
                0.9.into(),
                0.999.into(),
                0.0.into(),
                1e-8.into(),
                false.into(),
                false.into(),
            ],
        )
        .unwrap();
    let moved = parameters[0].to_vec::<f32>().unwrap();
    assert!((moved[0] - 0.9).abs() < 1e-5, "the first step of Adam is the learning rate: {moved:?}");
    // _foreach_mul_.ScalarList(self, scalars)
    let scalars = [2.0, 3.0];
    torch
        .call(operator!("_foreach_mul_", "ScalarList"), &[averages.as_slice().into(), Argument::Doubles(&scalars)])
        .unwrap();
    assert!((averages[1].to_vec::<f32>().unwrap()[0] - 0.15).abs() < 1e-6);
}

/// Stands for a second rank that has the same numbers; writes down how many bytes are summed each time.
struct Twin {
    summed: Arc<Mutex<Vec<usize>>>,
    has_gone: Arc<AtomicBool>,
}

impl Transport for Twin {
    fn all_reduce(&self, numbers: &mut [u8], size: usize, add: Add<'_>) -> Result<(), String> {
        if self.has_gone.load(Ordering::SeqCst) {
            return Err("rank 1 has gone".to_owned());
        }
        assert_eq!(size, 4, "float32");
        self.summed.lock().unwrap().push(numbers.len());
        let same = numbers.to_vec();
        add(numbers, &same)
    }

    fn broadcast(&self, _: &mut [u8], root: usize) -> Result<(), String> {
        assert_eq!(root, 0);
        Ok(())
    }

    fn all_gather(&self, own: &[u8], all: &mut [u8]) -> Result<(), String> {
        all.chunks_exact_mut(own.len()).for_each(|one| one.copy_from_slice(own));
        Ok(())
    }
}

#[test]
#[ignore = "needs PyTorch: TONNAGE_TORCH"]
fn tensors_are_summed_and_gathered_over_ranks() {
    let torch = load();
    let twin = Twin { summed: Arc::default(), has_gone: Arc::default() };
    let group = Group::new(&ranks_library(), Box::new(twin), 0, 2).unwrap();
    let own = torch.tensor(&[1.0_f32, 2.0], &[1, 2]).unwrap();
    let all = torch.tensor(&[0.0_f32; 4], &[2, 2]).unwrap();
    group.broadcast_each(std::slice::from_ref(&own)).unwrap();
    group.all_gather(&all, &own).unwrap();
    group.all_reduce(&own).unwrap();
    assert_eq!(all.to_vec::<f32>().unwrap(), [1.0, 2.0, 1.0, 2.0]);
    assert_eq!(own.to_vec::<f32>().unwrap(), [2.0, 4.0]);
    let error = group.all_gather(&own, &all).unwrap_err().text;
    assert!(error.contains("room for as many tensors as there are ranks"), "{error}");
}

#[test]
#[ignore = "needs PyTorch: TONNAGE_TORCH"]
fn gradients_are_reduced_in_buckets_as_under_distributed_data_parallel() {
    let torch = load();
    let library = ranks_library();
    let (summed, has_gone) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
    let twin = Twin { summed: Arc::clone(&summed), has_gone: Arc::clone(&has_gone) };
    let group = Group::new(&library, Box::new(twin), 0, 2).unwrap();
    // Half a MiB, 2 MiB, 16 bytes: buckets of 1 MiB, the first of the gradients that come first.
    let sizes = [1_i64 << 17, 1 << 19, 4];
    let leaf = |size: i64| torch.tensor(&vec![1.0_f32; size as usize], &[size]).unwrap().requiring_grad().unwrap();
    let parameters = sizes.map(leaf);
    group.broadcast(&parameters).unwrap();
    let reducer = group.reducer(&parameters, Buckets { cap_mb: Some(1), hold_gradients: false }).unwrap();
    let pass = |reduces: bool| -> Result<(), TorchError> {
        reducer.before_forward(reduces)?;
        let mut loss = sum(&mul(&parameters[0], &parameters[0])?)?;
        for parameter in &parameters[1..] {
            let more = sum(&mul(parameter, parameter)?)?;
            loss = torch.call(operator!("add", "Tensor"), &[(&loss).into(), (&more).into()])?.tensor()?;
        }
        if reduces {
            reducer.before_backward()?;
        }
        torch.backward(&loss)
    };
    let gradient = || parameters[2].grad().unwrap().unwrap().to_vec::<f32>().unwrap();
    pass(true).unwrap();
    assert_eq!(gradient(), [2.0; 4], "the mean of two ranks that have the same");
    assert_eq!(std::mem::take(&mut *summed.lock().unwrap()), [(1 << 19) + (1 << 21) + 16], "one bucket first");
    pass(false).unwrap();
    assert_eq!((gradient(), summed.lock().unwrap().len()), (vec![4.0; 4], 0), "as inside no_sync()");
    pass(true).unwrap();
    assert_eq!(gradient(), [6.0; 4]);
    let buckets = std::mem::take(&mut *summed.lock().unwrap());
    assert!(buckets.len() > 1 && buckets.iter().sum::<usize>() == (1 << 19) + (1 << 21) + 16, "{buckets:?}");
    has_gone.store(true, Ordering::SeqCst);
    let error = pass(true).unwrap_err();
    assert!(error.text.contains("rank 1 has gone"), "{error}");
}

#[test]
#[ignore = "needs PyTorch: TONNAGE_TORCH"]
fn ranks_leave_each_other_messages() {
    load();
    let library = ranks_library();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (serving, patience) = (Serving::Listener(listener.into_raw_fd()), Duration::from_secs(60));
    let store = Store::open(&library, "127.0.0.1", port, serving, patience).unwrap();
    store.set("a", b"message").unwrap();
    let other = Store::open(&library, "127.0.0.1", port, Serving::Another, patience).unwrap();
    assert_eq!(other.get("a", 64).unwrap(), b"message");
    assert!(other.get("a", 3).is_err(), "a message that is too long is none of ours");
}
