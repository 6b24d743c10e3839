//! Graphs: `cudaGraph*` as far as captured graphs need them. A graph is the number of its nodes; launching it does nothing.
#![allow(non_snake_case)]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fs;

use super::runtime_version;
use crate::boundary::{Slot, put_if_wanted, read, report_code};
use crate::error::{Error, Result};
use crate::state;

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaGraphCreate(graph: *mut usize, _flags: c_uint) -> c_int {
    // SAFETY: a place for the handle by the API's contract.
    report_code(unsafe { Slot::new(graph) }.map(|place| place.put(state::lock_streams().create_graph())))
}

#[unsafe(no_mangle)]
extern "C" fn cudaGraphDestroy(graph: usize) -> c_int {
    report_code(state::lock_streams().destroy_graph(graph))
}

/// # Safety
/// `executable` is null or a place for a handle.
unsafe fn instantiate_graph(executable: *mut usize, graph: usize) -> Result {
    // SAFETY: the caller's promise.
    let place = unsafe { Slot::new(executable) }?;
    place.put(state::lock_streams().instantiate(graph)?);
    Ok(())
}

/// Three parameters since CUDA 12; the two that CUDA 11 had between them are not served.
#[unsafe(no_mangle)]
unsafe extern "C" fn cudaGraphInstantiate(executable: *mut usize, graph: usize, _flags: u64) -> c_int {
    // SAFETY: a place for the handle by the API's contract.
    report_code(unsafe { instantiate_graph(executable, graph) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaGraphInstantiateWithFlags(executable: *mut usize, graph: usize, _flags: u64) -> c_int {
    // SAFETY: as above.
    report_code(unsafe { instantiate_graph(executable, graph) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaGraphInstantiateWithParams(
    executable: *mut usize,
    graph: usize,
    _parameters: *mut c_void,
) -> c_int {
    // SAFETY: as above.
    report_code(unsafe { instantiate_graph(executable, graph) })
}

#[unsafe(no_mangle)]
extern "C" fn cudaGraphUpload(executable: usize, _stream: usize) -> c_int {
    report_code(state::lock_streams().launch(executable, 0))
}

#[unsafe(no_mangle)]
extern "C" fn cudaGraphLaunch(executable: usize, stream: usize) -> c_int {
    report_code(state::lock_streams().launch(executable, stream))
}

#[unsafe(no_mangle)]
extern "C" fn cudaGraphExecDestroy(executable: usize) -> c_int {
    report_code(state::lock_streams().destroy_executable(executable))
}

/// Both results of an update are enumerations whose zero is success, in CUDA 12's and 13's structure alike.
#[unsafe(no_mangle)]
unsafe extern "C" fn cudaGraphExecUpdate(executable: usize, graph: usize, result: *mut c_int) -> c_int {
    // SAFETY: a place for the result, or null, by the API's contract.
    unsafe { put_if_wanted(result, 0) };
    report_code(state::lock_streams().update(executable, graph))
}

/// Handles of nodes are numbered from one: they are only counted and shown.
#[unsafe(no_mangle)]
unsafe extern "C" fn cudaGraphGetNodes(graph: usize, nodes: *mut usize, count: *mut usize) -> c_int {
    let listed = (|| {
        let present = state::lock_streams().nodes_of(graph)?;
        // SAFETY: the number of places behind `nodes` by the API's contract.
        let wanted = if nodes.is_null() { 0 } else { unsafe { read(count) }?.min(present) };
        for node in 0..wanted {
            // SAFETY: `count` said that so many places follow.
            unsafe { nodes.add(node).write(node + 1) };
        }
        // SAFETY: a place for the count by the API's contract.
        unsafe { Slot::new(count) }?.put(if nodes.is_null() { present } else { wanted });
        Ok(())
    })();
    report_code(listed)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaGraphGetRootNodes(graph: usize, nodes: *mut usize, count: *mut usize) -> c_int {
    // SAFETY: the same contract; without edges every node is a root.
    unsafe { cudaGraphGetNodes(graph, nodes, count) }
}

/// Every node is a kernel's (`cudaGraphNodeTypeKernel`).
#[unsafe(no_mangle)]
unsafe extern "C" fn cudaGraphNodeGetType(node: usize, kind: *mut c_int) -> c_int {
    // SAFETY: a place for the result by the API's contract.
    let place = unsafe { Slot::new(kind) };
    report_code(if node == 0 { Err(Error::INVALID_VALUE) } else { place.and_then(|place| place.give(0)) })
}

/// No node depends on another; CUDA 13 has one parameter more, for edges.
#[unsafe(no_mangle)]
unsafe extern "C" fn cudaGraphNodeGetDependencies(
    _node: usize,
    _dependencies: *mut usize,
    edges_or_count: *mut usize,
    count: *mut usize,
) -> c_int {
    let place = if runtime_version() >= 13_000 { count } else { edges_or_count };
    // SAFETY: a place for the count by the API's contract.
    report_code(unsafe { Slot::new(place) }.map(|place| place.put(0)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaGraphDebugDotPrint(graph: usize, path: *const c_char, _flags: c_uint) -> c_int {
    let printed = (|| {
        let nodes = state::lock_streams().nodes_of(graph)?;
        if path.is_null() {
            return Err(Error::INVALID_VALUE);
        }
        // SAFETY: a string that ends with zero, by the API's contract.
        let path = unsafe { CStr::from_ptr(path) }.to_str().map_err(|_| Error::INVALID_VALUE)?;
        let text: String = (1..=nodes).map(|node| format!("  node_{node};\n")).collect();
        fs::write(path, format!("digraph phantom {{\n{text}}}\n")).map_err(|_| Error::INVALID_VALUE)
    })();
    report_code(printed)
}

/// Memory of graphs' own allocation nodes: there are none.
#[unsafe(no_mangle)]
unsafe extern "C" fn cudaDeviceGetGraphMemAttribute(device: c_int, _attribute: c_int, value: *mut c_void) -> c_int {
    // SAFETY: a place for a 64-bit number by the API's contract.
    let place = unsafe { Slot::new(value.cast::<u64>()) };
    report_code(state::device_at(device).and_then(|_| place?.give(0)))
}

#[unsafe(no_mangle)]
extern "C" fn cudaDeviceSetGraphMemAttribute(device: c_int, _attribute: c_int, _value: *const c_void) -> c_int {
    report_code(state::device_at(device).map(drop))
}

#[unsafe(no_mangle)]
extern "C" fn cudaDeviceGraphMemTrim(device: c_int) -> c_int {
    report_code(state::device_at(device).map(drop))
}

/// Functions that exist to be refused: graphs that are built node by node, and conditional parts, whose condition only the
/// device could tell.
macro_rules! refused {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name() -> c_int {
            report_code(Err(Error::NOT_SUPPORTED))
        }
    )*};
}

refused! { cudaGraphAddNode cudaGraphAddNode_v2 cudaGraphAddEmptyNode cudaGraphConditionalHandleCreate cudaStreamBeginCaptureToGraph }
