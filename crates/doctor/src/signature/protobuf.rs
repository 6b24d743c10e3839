//! Packages generated for another protobuf. TensorBoard prints the first of these and goes on.

use super::{Reading, Signature};
use crate::cause::FailureCause;

const MESSAGES: &[&str] = &[
    "AttributeError: 'MessageFactory' object has no attribute 'GetPrototype'",
    "'MessageFactory' object has no attribute 'GetPrototype'",
    "TypeError: Descriptors cannot not be created directly",
    "TypeError: Descriptors cannot be created directly",
    "TypeError: Descriptors should not be created directly, but only retrieved from their parent",
    "AttributeError: module 'wandb.proto.wandb_internal_pb2' has no attribute",
    "google.protobuf.runtime_version.VersionError: Detected",
    "ImportError: cannot import name 'builder' from 'google.protobuf.internal'",
];

pub(super) const PROTOBUF: Signature = Signature {
    name: "protobuf",
    needles: &[
        "object has no attribute 'GetPrototype'",
        "Descriptors cannot ",
        "Descriptors should not be created directly",
        "wandb_internal_pb2' has no",
        "runtime_version.VersionError",
        "'builder' from 'google.protobuf",
    ],
    also: &[],
    follow: 0,
    read: |text| {
        if super::says_any(text, MESSAGES) { Reading::whole(FailureCause::Protobuf) } else { None }
    },
};
