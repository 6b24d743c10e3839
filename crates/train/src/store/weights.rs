//! Named tensors in safetensors files, as transformers reads and writes them.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use tonnage_core::small_sort::SmallSort;

use safetensors::tensor::{Dtype, Metadata, View};
use tonnage_torch::{ScalarType, Tensor, Torch};

use crate::error::TrainError;

/// A header longer than this is no safetensors file (the format's own limit).
const MOST_HEADER: u64 = 100_000_000;
/// What transformers asks of a file before it reads it (`metadata={"format": "pt"}` of `save_file`).
const FORMAT: (&str, &str) = ("format", "pt");

/// A tensor whose bytes were copied from its device.
struct Copied {
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

impl View for Copied {
    fn dtype(&self) -> Dtype {
        self.dtype
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(&self.bytes)
    }

    fn data_len(&self) -> usize {
        self.bytes.len()
    }
}

/// Writes named tensors to a new file; it is on the disk when this returns.
///
/// # Errors
/// When a tensor cannot be copied or the disk is full: the file is then not to be used.
pub fn write(path: &Path, tensors: &[(String, Tensor)]) -> Result<(), TrainError> {
    let mut copies = Vec::with_capacity(tensors.len());
    for (name, tensor) in tensors {
        let shape = tensor.sizes().iter().map(|size| usize::try_from(*size).unwrap_or_default()).collect();
        copies
            .push((name.as_str(), Copied { dtype: dtype_of(tensor.scalar_type()?), shape, bytes: tensor.to_bytes()? }));
    }
    let about = HashMap::from([(FORMAT.0.to_owned(), FORMAT.1.to_owned())]);
    safetensors::serialize_to_file(copies, Some(about), path)
        .map_err(|error| TrainError::about_weights(path, error.to_string()))?;
    let file = File::open(path).map_err(|error| TrainError::about_file(path, error))?;
    file.sync_all().map_err(|error| TrainError::about_file(path, error))
}

/// A safetensors file that is read tensor by tensor.
#[derive(Debug)]
pub struct Reader {
    path: std::path::PathBuf,
    file: File,
    /// Where the first tensor's bytes begin.
    start: u64,
    metadata: Metadata,
}

impl Reader {
    /// Reads the header.
    ///
    /// # Errors
    /// When it is no safetensors file, or shorter than its header says.
    pub fn open(path: &Path) -> Result<Self, TrainError> {
        let failed = |error| TrainError::about_file(path, error);
        let mut file = File::open(path).map_err(failed)?;
        let bytes = file.metadata().map_err(failed)?.len();
        let mut length = [0; 8];
        file.read_exact(&mut length)
            .map_err(|_| TrainError::about_weights(path, "too short for a safetensors file"))?;
        let header = u64::from_le_bytes(length);
        if header > MOST_HEADER || header > bytes {
            return Err(TrainError::about_weights(
                path,
                format!("its header would have {header} bytes: it is no safetensors file, or damaged"),
            ));
        }
        let mut text = Vec::new();
        file.by_ref().take(header).read_to_end(&mut text).map_err(failed)?;
        // Reading it also checks that the tensors follow one another without gaps and that shapes agree with bytes.
        let metadata: Metadata = serde_json::from_slice(&text)
            .map_err(|error| TrainError::about_weights(path, format!("its header is damaged: {error}")))?;
        let start = 8 + header;
        let end = metadata.tensors().values().map(|info| info.data_offsets.1).max().unwrap_or_default();
        if start.saturating_add(end as u64) != bytes {
            let problem =
                format!("it has {bytes} bytes where its header tells of {}", start.saturating_add(end as u64));
            return Err(TrainError::about_weights(path, problem));
        }
        Ok(Self { path: path.to_owned(), file, start, metadata })
    }

    /// The names of its tensors, sorted.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.metadata.tensors().into_keys().collect();
        names.small_sort();
        names
    }

    /// A tensor by its name, on the CPU; `None` where the file has none of that name.
    ///
    /// # Errors
    /// When its bytes cannot be read or its dtype is not supported.
    pub fn tensor(&mut self, torch: &'static Torch, name: &str) -> Result<Option<Tensor>, TrainError> {
        let Some(info) = self.metadata.info(name) else { return Ok(None) };
        let scalar_type = scalar_type_of(info.dtype).ok_or_else(|| {
            TrainError::about_weights(&self.path, format!("`{name}` holds {:?}, which is not supported", info.dtype))
        })?;
        let (first, after) = info.data_offsets;
        let sizes: Vec<i64> = info.shape.iter().map(|size| i64::try_from(*size).unwrap_or(i64::MAX)).collect();
        let mut bytes = vec![0; after.saturating_sub(first)];
        let failed = |error| TrainError::about_file(&self.path, error);
        self.file.seek(SeekFrom::Start(self.start + first as u64)).map_err(failed)?;
        self.file.read_exact(&mut bytes).map_err(|error| TrainError::about_file(&self.path, error))?;
        Ok(Some(torch.tensor_of_bytes(&bytes, &sizes, scalar_type)?))
    }

    /// All tensors by name.
    ///
    /// # Errors
    /// As [`Reader::tensor`].
    pub fn all(&mut self, torch: &'static Torch) -> Result<BTreeMap<String, Tensor>, TrainError> {
        let mut all = BTreeMap::new();
        for name in self.names() {
            if let Some(tensor) = self.tensor(torch, &name)? {
                all.insert(name, tensor);
            }
        }
        Ok(all)
    }
}

const DTYPES: [(Dtype, ScalarType); 10] = [
    (Dtype::U8, ScalarType::Uint8),
    (Dtype::I8, ScalarType::Int8),
    (Dtype::I16, ScalarType::Int16),
    (Dtype::I32, ScalarType::Int32),
    (Dtype::I64, ScalarType::Int64),
    (Dtype::F16, ScalarType::Float16),
    (Dtype::BF16, ScalarType::Bfloat16),
    (Dtype::F32, ScalarType::Float32),
    (Dtype::F64, ScalarType::Float64),
    (Dtype::BOOL, ScalarType::Bool),
];

fn scalar_type_of(dtype: Dtype) -> Option<ScalarType> {
    DTYPES.iter().find(|(one, _)| *one == dtype).map(|(_, scalar_type)| *scalar_type)
}

fn dtype_of(scalar_type: ScalarType) -> Dtype {
    // Every type that the engine knows is in the table; a test walks it.
    DTYPES.iter().find(|(_, one)| *one == scalar_type).map_or(Dtype::U8, |(dtype, _)| *dtype)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dtypes_are_named_one_to_one() {
        for (dtype, scalar_type) in DTYPES {
            assert_eq!(scalar_type_of(dtype), Some(scalar_type));
            assert_eq!(dtype_of(scalar_type), dtype);
            assert_eq!(dtype.bitsize(), scalar_type.bytes() * 8);
        }
    }

    proptest::proptest! {
        #[test]
        fn damaged_files_are_refused_without_a_panic(length in 0_u64..200, text in ".{0,120}", rest: Vec<u8>) {
            let path = std::env::temp_dir().join(format!("tonnage-weights-any-{}", std::process::id()));
            std::fs::write(&path, [&length.to_le_bytes()[..], text.as_bytes(), &rest].concat()).unwrap();
            // Whether it is one is chance; that there is an answer is what counts.
            let _ = Reader::open(&path);
            std::fs::remove_file(path).unwrap();
        }
    }

    #[test]
    fn what_is_no_safetensors_file_is_said() {
        let path = std::env::temp_dir().join(format!("tonnage-weights-{}", std::process::id()));
        let with = |content: &[u8]| {
            std::fs::write(&path, content).unwrap();
            Reader::open(&path).unwrap_err().to_string()
        };
        assert!(with(b"").contains("too short"));
        assert!(with(&u64::MAX.to_le_bytes()).contains("its header would have"));
        assert!(
            with(&[&2_u64.to_le_bytes()[..], b"{}", b"rest"].concat())
                .contains("it has 14 bytes where its header tells of 10")
        );
        let header = br#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#;
        let cut = [&(header.len() as u64).to_le_bytes()[..], header, &[0; 4]].concat();
        assert!(with(&cut).contains("where its header tells of"));
        assert!(with(&[&4_u64.to_le_bytes()[..], b"{{{{"].concat()).contains("damaged"));
        std::fs::remove_file(path).unwrap();
    }
}
