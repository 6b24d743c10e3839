//! Which weights in 4 bits are multiplied as they are stored, and which are unpacked first (bitsandbytes 0.50.2, backends/cuda/ops.py,
//! `_gemm_4bit_use_custom_cuda`): a table of GPUs, rows and shapes that was calibrated on them.

use crate::dtype::DType;
use crate::gpu::Device;

/// `_gemm_4bit_custom_max_m`: above, weights are always unpacked.
const MOST_ROWS: u64 = 1536;
/// `_GEMM_4BIT_CUSTOM_FLOOR_M`: up to so many rows they never are.
const FEWEST_ROWS: u64 = 4;
/// Up to so many rows the kernel needs no tensor cores.
const SIMT_ROWS: u64 = 7;
/// Below so many weights, unpacking costs more than it gains.
const SMALL_WEIGHT: u64 = 4 << 20;
/// Above so many rows a large weight is unpacked.
const MOST_ROWS_OF_LARGE: u64 = 512;

/// A product of `rows` [rows, inputs] with a weight [outputs, inputs].
pub(super) struct Gemm {
    pub rows: u64,
    pub outputs: u64,
    pub inputs: u64,
    pub dtype: DType,
}

impl Gemm {
    /// Whether the weight is multiplied as it is stored.
    pub(super) fn is_fused(&self, device: Device) -> bool {
        match device.compute_capability {
            _ if self.rows > MOST_ROWS => false,
            _ if self.rows <= FEWEST_ROWS => true,
            capability if self.lacks_tensor_cores(capability) => self.rows <= SIMT_ROWS,
            (8, 7) | (11, _) => false,
            (10, _) => self.rows <= self.rows_on_sm100(self.waves(device)),
            _ if self.outputs * self.inputs < SMALL_WEIGHT => self.rows <= self.rows_of_small(device),
            _ if self.rows > MOST_ROWS_OF_LARGE => false,
            capability if self.rows <= SIMT_ROWS => !self.is_tiled_better(capability, self.waves(device)),
            _ => self.rows <= self.rows_of_large(device),
        }
    }

    fn lacks_tensor_cores(&self, (major, minor): (u32, u32)) -> bool {
        self.dtype == DType::Float32 || major < 7 || (major == 7 && (minor < 5 || self.dtype != DType::Float16))
    }

    fn waves(&self, device: Device) -> Waves {
        Waves { blocks: self.outputs.div_ceil(64), multiprocessors: device.multiprocessors }
    }

    fn rows_on_sm100(&self, waves: Waves) -> u64 {
        match () {
            () if waves.reach(3, 1) => 32,
            () if waves.reach(1, 1) && self.inputs < self.outputs => 8,
            () => 0,
        }
    }

    fn rows_of_small(&self, device: Device) -> u64 {
        let (capability, waves) = (device.compute_capability, self.waves(device));
        let (is_sm75, is_sm80) = (capability == (7, 5), capability == (8, 0));
        let is_hbm = is_sm80 || capability.0 == 9;
        if self.inputs * 2 < self.outputs {
            return self.rows_of_short(device);
        }
        // A quarter of a wave of exactly so many blocks is still one.
        let is_quarter_wave = waves.blocks * 4 <= waves.multiprocessors;
        match () {
            () if is_sm80 && is_quarter_wave && self.inputs < self.outputs => 384,
            () if is_sm80 && is_quarter_wave && waves.blocks * 8 <= waves.multiprocessors => 32,
            () if is_sm80 && is_quarter_wave => 128,
            () if is_sm75 && !waves.reach(1, 1) && self.rows > 8 => 64,
            () if is_quarter_wave && (self.inputs < self.outputs || is_hbm) => 32,
            () if is_quarter_wave => 23,
            () if waves.blocks * 2 <= waves.multiprocessors => 16,
            () => 0,
        }
    }

    /// Of a small weight with less than half as many inputs as outputs.
    fn rows_of_short(&self, device: Device) -> u64 {
        let waves = self.waves(device);
        let is_low_wave = !waves.reach(1, 3);
        match device.compute_capability {
            (8, 0) if is_low_wave => 1536,
            (8, 0) => 512,
            (9, _) if is_low_wave => 512,
            (9, _) => 320,
            (7, 5) if waves.reach(3, 1) => 320,
            (7, 5) if self.inputs >= 1024 => 64,
            (7, 5) if self.inputs >= 704 => 96,
            (7, 5) => 320,
            _ if waves.reach(1, 1) => 320,
            _ if waves.blocks * self.inputs > waves.multiprocessors * 320 => 192,
            _ => 320,
        }
    }

    /// Where unpacking wins with 5 to 7 rows already.
    fn is_tiled_better(&self, capability: (u32, u32), waves: Waves) -> bool {
        let (is_sm80, is_sm90) = (capability == (8, 0), capability.0 == 9);
        let fewest_blocks = if is_sm90 { 36 } else { 48 };
        if !(is_sm80 || is_sm90) || self.rows < 6 || waves.blocks < fewest_blocks {
            return false;
        }
        let (is_below_75, is_below_60) = (!waves.reach(3, 4), !waves.reach(3, 5));
        let is_square = self.inputs == self.outputs;
        (self.inputs > self.outputs && is_below_75)
            || (is_square && is_sm80 && is_below_60)
            || (is_square && is_sm90 && is_below_75 && !is_below_60)
    }

    /// With 8 to 512 rows.
    fn rows_of_large(&self, device: Device) -> u64 {
        let waves = self.waves(device);
        match device.compute_capability {
            (7, 5) => self.rows_on_sm75(waves),
            (8, 0) => self.rows_on_sm80(waves),
            (8, 6) => [(1, 1, 128), (1, 2, 64)].first_reached(waves).unwrap_or(16),
            (9, _) => self.rows_on_sm90(waves),
            (12, 0) => self.rows_on_sm120(waves),
            (12, 1) if waves.reach(1, 1) => 256,
            _ => self.rows_on_sm89(waves),
        }
    }

    fn rows_on_sm75(&self, waves: Waves) -> u64 {
        match () {
            () if waves.reach(3, 1) && self.inputs < self.outputs => 128,
            () if waves.reach_half() => 64,
            () => 32,
        }
    }

    fn rows_on_sm80(&self, waves: Waves) -> u64 {
        let (inputs, outputs) = (self.inputs, self.outputs);
        match () {
            () if waves.reach(3, 1) => 128,
            () if waves.reach(1, 1) && inputs < outputs => 64,
            () if waves.reach(1, 1) => 32,
            () if inputs >= outputs * 3 && waves.blocks * 4 > waves.multiprocessors => 0,
            () if inputs == outputs && waves.blocks >= 48 && !waves.reach(3, 5) => 0,
            () if !waves.reach(1, 2) && inputs <= outputs => 128,
            () if !waves.reach(1, 2) && waves.reach(1, 3) => 0,
            () if waves.reach_half() && inputs < outputs => 128,
            () => 16,
        }
    }

    fn rows_on_sm90(&self, waves: Waves) -> u64 {
        match [(3, 1, 64), (2, 1, 48), (1, 1, 32)].first_reached(waves) {
            Some(rows) => rows,
            None if !waves.reach_half() => 0,
            None if self.inputs >= self.outputs && !waves.reach(3, 4) => 0,
            None => 16,
        }
    }

    fn rows_on_sm120(&self, waves: Waves) -> u64 {
        let (inputs, outputs) = (self.inputs, self.outputs);
        match [(3, 1, 256), (2, 1, 128)].first_reached(waves) {
            Some(rows) => rows,
            None if waves.reach(4, 5) && inputs >= outputs => 96,
            None if waves.reach(4, 5) => 64,
            None if waves.reach_half() && inputs * 2 >= outputs && waves.blocks >= 128 => 64,
            None if waves.reach_half() => 8,
            None if inputs > outputs * 2 && waves.blocks > 64 => 16,
            None => 8,
        }
    }

    /// What holds for all GPUs without a table of their own, too.
    fn rows_on_sm89(&self, waves: Waves) -> u64 {
        let (inputs, outputs) = (self.inputs, self.outputs);
        let is_tall = inputs > outputs * 2;
        match [(3, 1, 256), (2, 1, 128)].first_reached(waves) {
            Some(rows) => rows,
            None if waves.reach(4, 5) && (is_tall || waves.blocks >= 200) => 128,
            None if waves.reach(4, 5) && inputs >= outputs && waves.multiprocessors >= 60 => 128,
            None if waves.reach(4, 5) && inputs >= outputs => 32,
            None if waves.reach(4, 5) => 64,
            None if waves.reach_half() && is_tall => 64,
            None if waves.reach_half() && waves.blocks >= 64 => 8,
            None if waves.reach_half() => 32,
            None if inputs > outputs && waves.blocks <= 48 && inputs >= outputs * 3 => 12,
            None if inputs > outputs && waves.blocks <= 48 => 10,
            None if is_tall || waves.blocks < 48 => 16,
            None => 8,
        }
    }
}

/// Blocks of 64 outputs beside the multiprocessors that take one each at a time.
#[derive(Clone, Copy)]
struct Waves {
    blocks: u64,
    multiprocessors: u64,
}

impl Waves {
    /// Whether they are at least so many waves, as a fraction.
    const fn reach(self, numerator: u64, denominator: u64) -> bool {
        self.blocks * denominator >= self.multiprocessors * numerator
    }

    /// `n_blocks >= num_sms // 2`
    const fn reach_half(self) -> bool {
        self.blocks >= self.multiprocessors / 2
    }
}

/// Rows by how many waves there are.
trait Tiers {
    fn first_reached(&self, waves: Waves) -> Option<u64>;
}

impl<const N: usize> Tiers for [(u64, u64, u64); N] {
    fn first_reached(&self, waves: Waves) -> Option<u64> {
        let reached = self.iter().find(|(numerator, denominator, _)| match (numerator, denominator) {
            (1, 2) => waves.reach_half(),
            _ => waves.reach(*numerator, *denominator),
        });
        reached.map(|(.., rows)| *rows)
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    /// GPU, dtype and shape, and for each number of rows whether bitsandbytes' own function says so.
    #[derive(Deserialize)]
    struct Answers {
        rows: Vec<u64>,
        cases: Vec<Case>,
    }

    type Case = ((u32, u32), u64, String, u64, u64, String);

    #[test]
    fn bitsandbytes_says_the_same() {
        let text = include_str!("../../../../../testdata/scratch/gemm_4bit.json");
        let answers: Answers = serde_json::from_str(text).unwrap();
        for (compute_capability, multiprocessors, dtype, outputs, inputs, fused) in &answers.cases {
            let device = Device { compute_capability: *compute_capability, multiprocessors: *multiprocessors };
            let dtype = match dtype.as_str() {
                "fp32" => DType::Float32,
                "fp16" => DType::Float16,
                _ => DType::Bfloat16,
            };
            let gemm = |rows| Gemm { rows, outputs: *outputs, inputs: *inputs, dtype };
            let own: String =
                answers.rows.iter().map(|rows| if gemm(*rows).is_fused(device) { '1' } else { '0' }).collect();
            assert_eq!(&own, fused, "{device:?} {dtype:?} {outputs} x {inputs}");
        }
    }
}
