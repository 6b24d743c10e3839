//! One stage of a model whose layers lie over several ranks: only the first has the embedding, only the last the norm and the head.

use super::Builder;
use super::head::HeadPlace;

/// Which ends of the model a stage has.
#[derive(Clone, Copy)]
pub(crate) struct Ends {
    pub front: bool,
    pub back: bool,
}

impl Builder {
    /// The builder of a stage with these ends of the model.
    pub(crate) fn of_stage(&self, ends: Ends) -> Self {
        self.clone().set(|settings| settings.ends = ends)
    }

    /// The builder of what stands before the layers: its weights have no memory and nobody lists them where another stage has them.
    pub(crate) fn at_front(&self) -> Self {
        self.kept_if(self.ends.front)
    }

    /// The same of the head behind the layers.
    pub(crate) fn at_back(&self) -> Self {
        self.kept_if(self.ends.back)
    }

    /// Whether what follows the layers is here.
    pub(crate) fn has_back(&self) -> bool {
        self.ends.back
    }

    fn kept_if(&self, is_here: bool) -> Self {
        let head = if is_here { self.head } else { HeadPlace::Here };
        self.clone().set(|settings| settings.head = head)
    }
}
