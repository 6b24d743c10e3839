//! Activation functions under the names that configs give them.

use crate::job::FieldError;
use crate::op::Gelu;
use crate::tensor::Tensor;

/// An activation function under its Hugging Face name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Activation {
    /// One op: `gelu`, `gelu_pytorch_tanh`.
    Gelu(Gelu),
    /// GPT-2's composite tanh approximation.
    GeluNew,
    /// CLIP's composite approximation by a sigmoid.
    QuickGelu,
    Silu,
    Relu,
    /// `relu2`
    SquaredRelu,
}

impl Activation {
    /// Reads `hidden_act` and its relatives.
    pub(crate) fn from_name(key: &str, name: &str) -> Result<Self, FieldError> {
        match name {
            "gelu" => Ok(Self::Gelu(Gelu::Exact)),
            "gelu_pytorch_tanh" => Ok(Self::Gelu(Gelu::Tanh)),
            "gelu_new" => Ok(Self::GeluNew),
            "quick_gelu" => Ok(Self::QuickGelu),
            "silu" | "swish" => Ok(Self::Silu),
            "relu" => Ok(Self::Relu),
            "relu2" => Ok(Self::SquaredRelu),
            _ => Err(FieldError::new(
                key,
                format!(
                    "activation `{name}` is not known; known are gelu, gelu_new, gelu_pytorch_tanh, quick_gelu, relu, relu2, silu"
                ),
            )),
        }
    }

    pub(crate) fn forward(self, input: &Tensor) -> Tensor {
        match self {
            Self::Gelu(approximate) => input.gelu(approximate),
            Self::GeluNew => gelu_new(input),
            Self::QuickGelu => quick_gelu(input),
            Self::Silu => input.silu(),
            Self::Relu => input.relu(),
            Self::SquaredRelu => input.relu().pow_scalar(2.0),
        }
    }
}

/// `input * sigmoid(1.702 * input)`
fn quick_gelu(input: &Tensor) -> Tensor {
    let gate = {
        let scaled = input.mul_scalar(1.702);
        scaled.sigmoid()
    };
    input * &gate
}

/// `0.5 * x * (1.0 + tanh(sqrt(2 / pi) * (x + 0.044715 * x ** 3)))`
fn gelu_new(input: &Tensor) -> Tensor {
    let half = input.mul_scalar(0.5);
    let one_plus = {
        let tanh = {
            let scaled = {
                let sum = {
                    let cubed = input.pow_scalar(3.0).mul_scalar(0.044715);
                    input + &cubed
                };
                sum.mul_scalar((2.0 / std::f64::consts::PI).sqrt())
            };
            scaled.tanh()
        };
        tanh.add_scalar(1.0)
    };
    &half * &one_plus
}
