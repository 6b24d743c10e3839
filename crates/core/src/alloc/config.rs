//! The settings of `PYTORCH_ALLOC_CONF`, under their own names.

/// Allocator settings; the default is PyTorch's.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AllocatorConfig {
    /// `expandable_segments`
    pub expandable_segments: bool,
    /// `max_split_size_mb`, in MiB
    pub max_split_size_mb: Option<u64>,
    /// `roundup_power2_divisions`, as pairs of (size threshold in bytes, divisions)
    pub roundup_power2_divisions: Vec<(u64, u64)>,
    /// `garbage_collection_threshold`, 0 to 1; 0 is off
    pub garbage_collection_threshold: f64,
}
