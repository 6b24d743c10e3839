//! cuSOLVER's dense functions: handles and parameters are opaque, decompositions compute nothing. Their workspaces are said
//! to be empty, because NVIDIA does not document them: what they need beyond their matrices is not counted. That of singular values in fp32,
//! which GaLore takes, is as the library answers; those of eigenvectors and orthogonal factors are in `factors`.
#![allow(non_snake_case)]

use std::ffi::c_int;

use crate::accepted::{creates, handled, needs_nothing};
use crate::boundary::Slot;

/// `CUSOLVER_STATUS_INVALID_VALUE`.
const INVALID_VALUE: c_int = 3;
/// `CUSOLVER_STATUS_NOT_INITIALIZED`.
const NOT_INITIALIZED: c_int = 1;

creates! {
    INVALID_VALUE;
    cusolverDnCreate cusolverDnCreateSyevjInfo cusolverDnCreateGesvdjInfo cusolverDnCreateParams
}

handled! {
    NOT_INITIALIZED;
    cusolverDnDestroy cusolverDnSetStream cusolverDnSetDeterministicMode cusolverDnSetMathMode
    cusolverDnSetEmulationStrategy cusolverDnIRSParamsCreate cusolverDnIRSParamsDestroy
    cusolverDnIRSParamsSetRefinementSolver cusolverDnIRSParamsSetSolverMainPrecision
    cusolverDnIRSParamsSetSolverLowestPrecision cusolverDnIRSParamsSetSolverPrecisions cusolverDnIRSParamsSetTol
    cusolverDnIRSParamsSetTolInner cusolverDnIRSParamsSetMaxIters cusolverDnIRSParamsSetMaxItersInner
    cusolverDnIRSParamsEnableFallback cusolverDnIRSParamsDisableFallback cusolverDnIRSInfosDestroy
    cusolverDnIRSInfosCreate cusolverDnIRSInfosRequestResidual cusolverDnZZgesv cusolverDnZCgesv cusolverDnZKgesv
    cusolverDnZEgesv cusolverDnZYgesv cusolverDnCCgesv cusolverDnCEgesv cusolverDnCKgesv cusolverDnCYgesv
    cusolverDnDDgesv cusolverDnDSgesv cusolverDnDHgesv cusolverDnDBgesv cusolverDnDXgesv cusolverDnSSgesv
    cusolverDnSHgesv cusolverDnSBgesv cusolverDnSXgesv cusolverDnZZgels cusolverDnZCgels cusolverDnZKgels
    cusolverDnZEgels cusolverDnZYgels cusolverDnCCgels cusolverDnCKgels cusolverDnCEgels cusolverDnCYgels
    cusolverDnDDgels cusolverDnDSgels cusolverDnDHgels cusolverDnDBgels cusolverDnDXgels cusolverDnSSgels
    cusolverDnSHgels cusolverDnSBgels cusolverDnSXgels cusolverDnIRSXgesv cusolverDnIRSXgels cusolverDnSpotrf
    cusolverDnDpotrf cusolverDnCpotrf cusolverDnZpotrf cusolverDnSpotrs cusolverDnDpotrs cusolverDnCpotrs
    cusolverDnZpotrs cusolverDnSpotrfBatched cusolverDnDpotrfBatched cusolverDnCpotrfBatched
    cusolverDnZpotrfBatched cusolverDnSpotrsBatched cusolverDnDpotrsBatched cusolverDnCpotrsBatched
    cusolverDnZpotrsBatched cusolverDnSpotri cusolverDnDpotri cusolverDnCpotri cusolverDnZpotri cusolverDnXtrtri
    cusolverDnSlauum cusolverDnDlauum cusolverDnClauum cusolverDnZlauum cusolverDnSgetrf cusolverDnDgetrf
    cusolverDnCgetrf cusolverDnZgetrf cusolverDnSlaswp cusolverDnDlaswp cusolverDnClaswp cusolverDnZlaswp
    cusolverDnSgetrs cusolverDnDgetrs cusolverDnCgetrs cusolverDnZgetrs cusolverDnSgeqrf cusolverDnDgeqrf
    cusolverDnCgeqrf cusolverDnZgeqrf cusolverDnSorgqr cusolverDnDorgqr cusolverDnCungqr cusolverDnZungqr
    cusolverDnSormqr cusolverDnDormqr cusolverDnCunmqr cusolverDnZunmqr cusolverDnSsytrf cusolverDnDsytrf
    cusolverDnCsytrf cusolverDnZsytrf cusolverDnXsytrs cusolverDnSsytri cusolverDnDsytri cusolverDnCsytri
    cusolverDnZsytri cusolverDnSgebrd cusolverDnDgebrd cusolverDnCgebrd cusolverDnZgebrd cusolverDnSorgbr
    cusolverDnDorgbr cusolverDnCungbr cusolverDnZungbr cusolverDnSsytrd cusolverDnDsytrd cusolverDnChetrd
    cusolverDnZhetrd cusolverDnSorgtr cusolverDnDorgtr cusolverDnCungtr cusolverDnZungtr cusolverDnSormtr
    cusolverDnDormtr cusolverDnCunmtr cusolverDnZunmtr cusolverDnSgesvd cusolverDnDgesvd cusolverDnCgesvd
    cusolverDnZgesvd cusolverDnSsyevd cusolverDnDsyevd cusolverDnCheevd cusolverDnZheevd cusolverDnSsyevdx
    cusolverDnDsyevdx cusolverDnCheevdx cusolverDnZheevdx cusolverDnSsygvdx cusolverDnDsygvdx cusolverDnChegvdx
    cusolverDnZhegvdx cusolverDnSsygvd cusolverDnDsygvd cusolverDnChegvd cusolverDnZhegvd
    cusolverDnDestroySyevjInfo cusolverDnXsyevjSetTolerance cusolverDnXsyevjSetMaxSweeps cusolverDnXsyevjSetSortEig
    cusolverDnSsyevjBatched cusolverDnDsyevjBatched cusolverDnCheevjBatched cusolverDnZheevjBatched
    cusolverDnSsyevj cusolverDnDsyevj cusolverDnCheevj cusolverDnZheevj cusolverDnSsygvj cusolverDnDsygvj
    cusolverDnChegvj cusolverDnZhegvj cusolverDnDestroyGesvdjInfo cusolverDnXgesvdjSetTolerance
    cusolverDnXgesvdjSetMaxSweeps cusolverDnXgesvdjSetSortEig cusolverDnSgesvdjBatched cusolverDnDgesvdjBatched
    cusolverDnCgesvdjBatched cusolverDnZgesvdjBatched cusolverDnSgesvdj cusolverDnDgesvdj cusolverDnCgesvdj
    cusolverDnZgesvdj cusolverDnSgesvdaStridedBatched cusolverDnDgesvdaStridedBatched
    cusolverDnCgesvdaStridedBatched cusolverDnZgesvdaStridedBatched cusolverDnDestroyParams cusolverDnSetAdvOptions
    cusolverDnXpotrf cusolverDnXpotrs cusolverDnXgeqrf cusolverDnXgetrf cusolverDnXgetrs cusolverDnXsyevd
    cusolverDnXsyevBatched cusolverDnXsyevdx cusolverDnXgeev cusolverDnXgesvd cusolverDnXgesvdp cusolverDnXgesvdr
    cusolverDnXlarft
}

needs_nothing! {
    INVALID_VALUE; c_int;
    cusolverDnSpotrf_bufferSize(_a _b _c _d _e)
    cusolverDnDpotrf_bufferSize(_a _b _c _d _e)
    cusolverDnCpotrf_bufferSize(_a _b _c _d _e)
    cusolverDnZpotrf_bufferSize(_a _b _c _d _e)
    cusolverDnSpotri_bufferSize(_a _b _c _d _e)
    cusolverDnDpotri_bufferSize(_a _b _c _d _e)
    cusolverDnCpotri_bufferSize(_a _b _c _d _e)
    cusolverDnZpotri_bufferSize(_a _b _c _d _e)
    cusolverDnSlauum_bufferSize(_a _b _c _d _e)
    cusolverDnDlauum_bufferSize(_a _b _c _d _e)
    cusolverDnClauum_bufferSize(_a _b _c _d _e)
    cusolverDnZlauum_bufferSize(_a _b _c _d _e)
    cusolverDnSgetrf_bufferSize(_a _b _c _d _e)
    cusolverDnDgetrf_bufferSize(_a _b _c _d _e)
    cusolverDnCgetrf_bufferSize(_a _b _c _d _e)
    cusolverDnZgetrf_bufferSize(_a _b _c _d _e)
    cusolverDnDgeqrf_bufferSize(_a _b _c _d _e)
    cusolverDnCgeqrf_bufferSize(_a _b _c _d _e)
    cusolverDnZgeqrf_bufferSize(_a _b _c _d _e)
    cusolverDnDorgqr_bufferSize(_a _b _c _d _e _f _g)
    cusolverDnCungqr_bufferSize(_a _b _c _d _e _f _g)
    cusolverDnZungqr_bufferSize(_a _b _c _d _e _f _g)
    cusolverDnSormqr_bufferSize(_a _b _c _d _e _f _g _h _i _j _k)
    cusolverDnDormqr_bufferSize(_a _b _c _d _e _f _g _h _i _j _k)
    cusolverDnCunmqr_bufferSize(_a _b _c _d _e _f _g _h _i _j _k)
    cusolverDnZunmqr_bufferSize(_a _b _c _d _e _f _g _h _i _j _k)
    cusolverDnSsytrf_bufferSize(_a _b _c _d)
    cusolverDnDsytrf_bufferSize(_a _b _c _d)
    cusolverDnCsytrf_bufferSize(_a _b _c _d)
    cusolverDnZsytrf_bufferSize(_a _b _c _d)
    cusolverDnSsytri_bufferSize(_a _b _c _d _e _f)
    cusolverDnDsytri_bufferSize(_a _b _c _d _e _f)
    cusolverDnCsytri_bufferSize(_a _b _c _d _e _f)
    cusolverDnZsytri_bufferSize(_a _b _c _d _e _f)
    cusolverDnSgebrd_bufferSize(_a _b _c)
    cusolverDnDgebrd_bufferSize(_a _b _c)
    cusolverDnCgebrd_bufferSize(_a _b _c)
    cusolverDnZgebrd_bufferSize(_a _b _c)
    cusolverDnSorgbr_bufferSize(_a _b _c _d _e _f _g _h)
    cusolverDnDorgbr_bufferSize(_a _b _c _d _e _f _g _h)
    cusolverDnCungbr_bufferSize(_a _b _c _d _e _f _g _h)
    cusolverDnZungbr_bufferSize(_a _b _c _d _e _f _g _h)
    cusolverDnSsytrd_bufferSize(_a _b _c _d _e _f _g _h)
    cusolverDnDsytrd_bufferSize(_a _b _c _d _e _f _g _h)
    cusolverDnChetrd_bufferSize(_a _b _c _d _e _f _g _h)
    cusolverDnZhetrd_bufferSize(_a _b _c _d _e _f _g _h)
    cusolverDnSorgtr_bufferSize(_a _b _c _d _e _f)
    cusolverDnDorgtr_bufferSize(_a _b _c _d _e _f)
    cusolverDnCungtr_bufferSize(_a _b _c _d _e _f)
    cusolverDnZungtr_bufferSize(_a _b _c _d _e _f)
    cusolverDnSormtr_bufferSize(_a _b _c _d _e _f _g _h _i _j _k)
    cusolverDnDormtr_bufferSize(_a _b _c _d _e _f _g _h _i _j _k)
    cusolverDnCunmtr_bufferSize(_a _b _c _d _e _f _g _h _i _j _k)
    cusolverDnZunmtr_bufferSize(_a _b _c _d _e _f _g _h _i _j _k)
    cusolverDnSgesvd_bufferSize(_a _b _c)
    cusolverDnDgesvd_bufferSize(_a _b _c)
    cusolverDnCgesvd_bufferSize(_a _b _c)
    cusolverDnZgesvd_bufferSize(_a _b _c)
    cusolverDnSsyevd_bufferSize(_a _b _c _d _e _f _g)
    cusolverDnDsyevd_bufferSize(_a _b _c _d _e _f _g)
    cusolverDnCheevd_bufferSize(_a _b _c _d _e _f _g)
    cusolverDnZheevd_bufferSize(_a _b _c _d _e _f _g)
    cusolverDnSsyevdx_bufferSize(_a _b _c _d _e _f _g _h _i _j _k _l _m)
    cusolverDnDsyevdx_bufferSize(_a _b _c _d _e _f _g _h _i _j _k _l _m)
    cusolverDnCheevdx_bufferSize(_a _b _c _d _e _f _g _h _i _j _k _l _m)
    cusolverDnZheevdx_bufferSize(_a _b _c _d _e _f _g _h _i _j _k _l _m)
    cusolverDnSsygvdx_bufferSize(_a _b _c _d _e _f _g _h _i _j _k _l _m _n _o _p)
    cusolverDnDsygvdx_bufferSize(_a _b _c _d _e _f _g _h _i _j _k _l _m _n _o _p)
    cusolverDnChegvdx_bufferSize(_a _b _c _d _e _f _g _h _i _j _k _l _m _n _o _p)
    cusolverDnZhegvdx_bufferSize(_a _b _c _d _e _f _g _h _i _j _k _l _m _n _o _p)
    cusolverDnSsygvd_bufferSize(_a _b _c _d _e _f _g _h _i _j)
    cusolverDnDsygvd_bufferSize(_a _b _c _d _e _f _g _h _i _j)
    cusolverDnChegvd_bufferSize(_a _b _c _d _e _f _g _h _i _j)
    cusolverDnZhegvd_bufferSize(_a _b _c _d _e _f _g _h _i _j)
    cusolverDnSsyevjBatched_bufferSize(_a _b _c _d _e _f _g)
    cusolverDnDsyevjBatched_bufferSize(_a _b _c _d _e _f _g)
    cusolverDnCheevjBatched_bufferSize(_a _b _c _d _e _f _g)
    cusolverDnZheevjBatched_bufferSize(_a _b _c _d _e _f _g)
    cusolverDnDsyevj_bufferSize(_a _b _c _d _e _f _g)
    cusolverDnCheevj_bufferSize(_a _b _c _d _e _f _g)
    cusolverDnZheevj_bufferSize(_a _b _c _d _e _f _g)
    cusolverDnSsygvj_bufferSize(_a _b _c _d _e _f _g _h _i _j)
    cusolverDnDsygvj_bufferSize(_a _b _c _d _e _f _g _h _i _j)
    cusolverDnChegvj_bufferSize(_a _b _c _d _e _f _g _h _i _j)
    cusolverDnZhegvj_bufferSize(_a _b _c _d _e _f _g _h _i _j)
    cusolverDnSgesvdjBatched_bufferSize(_a _b _c _d _e _f _g _h _i _j _k)
    cusolverDnDgesvdjBatched_bufferSize(_a _b _c _d _e _f _g _h _i _j _k)
    cusolverDnCgesvdjBatched_bufferSize(_a _b _c _d _e _f _g _h _i _j _k)
    cusolverDnZgesvdjBatched_bufferSize(_a _b _c _d _e _f _g _h _i _j _k)
    cusolverDnDgesvdj_bufferSize(_a _b _c _d _e _f _g _h _i _j _k _l)
    cusolverDnCgesvdj_bufferSize(_a _b _c _d _e _f _g _h _i _j _k _l)
    cusolverDnZgesvdj_bufferSize(_a _b _c _d _e _f _g _h _i _j _k _l)
    cusolverDnSgesvdaStridedBatched_bufferSize(_a _b _c _d _e _f _g _h _i _j _k _l _m _n _o _p)
    cusolverDnDgesvdaStridedBatched_bufferSize(_a _b _c _d _e _f _g _h _i _j _k _l _m _n _o _p)
    cusolverDnCgesvdaStridedBatched_bufferSize(_a _b _c _d _e _f _g _h _i _j _k _l _m _n _o _p)
    cusolverDnZgesvdaStridedBatched_bufferSize(_a _b _c _d _e _f _g _h _i _j _k _l _m _n _o _p)
}

needs_nothing! {
    INVALID_VALUE; usize;
    cusolverDnZZgesv_bufferSize(_a _b _c _d _e _f _g _h _i _j _k)
    cusolverDnZCgesv_bufferSize(_a _b _c _d _e _f _g _h _i _j _k)
    cusolverDnZKgesv_bufferSize(_a _b _c _d _e _f _g _h _i _j _k)
    cusolverDnZEgesv_bufferSize(_a _b _c _d _e _f _g _h _i _j _k)
    cusolverDnZYgesv_bufferSize(_a _b _c _d _e _f _g _h _i _j _k)
    cusolverDnCCgesv_bufferSize(_a _b _c _d _e _f _g _h _i _j _k)
    cusolverDnCKgesv_bufferSize(_a _b _c _d _e _f _g _h _i _j _k)
    cusolverDnCEgesv_bufferSize(_a _b _c _d _e _f _g _h _i _j _k)
    cusolverDnCYgesv_bufferSize(_a _b _c _d _e _f _g _h _i _j _k)
    cusolverDnDDgesv_bufferSize(_a _b _c _d _e _f _g _h _i _j _k)
    cusolverDnDSgesv_bufferSize(_a _b _c _d _e _f _g _h _i _j _k)
    cusolverDnDHgesv_bufferSize(_a _b _c _d _e _f _g _h _i _j _k)
    cusolverDnDBgesv_bufferSize(_a _b _c _d _e _f _g _h _i _j _k)
    cusolverDnDXgesv_bufferSize(_a _b _c _d _e _f _g _h _i _j _k)
    cusolverDnSSgesv_bufferSize(_a _b _c _d _e _f _g _h _i _j _k)
    cusolverDnSHgesv_bufferSize(_a _b _c _d _e _f _g _h _i _j _k)
    cusolverDnSBgesv_bufferSize(_a _b _c _d _e _f _g _h _i _j _k)
    cusolverDnSXgesv_bufferSize(_a _b _c _d _e _f _g _h _i _j _k)
    cusolverDnZZgels_bufferSize(_a _b _c _d _e _f _g _h _i _j _k)
    cusolverDnZCgels_bufferSize(_a _b _c _d _e _f _g _h _i _j _k)
    cusolverDnZKgels_bufferSize(_a _b _c _d _e _f _g _h _i _j _k)
    cusolverDnZEgels_bufferSize(_a _b _c _d _e _f _g _h _i _j _k)
    cusolverDnZYgels_bufferSize(_a _b _c _d _e _f _g _h _i _j _k)
    cusolverDnCCgels_bufferSize(_a _b _c _d _e _f _g _h _i _j _k)
    cusolverDnCKgels_bufferSize(_a _b _c _d _e _f _g _h _i _j _k)
    cusolverDnCEgels_bufferSize(_a _b _c _d _e _f _g _h _i _j _k)
    cusolverDnCYgels_bufferSize(_a _b _c _d _e _f _g _h _i _j _k)
    cusolverDnDDgels_bufferSize(_a _b _c _d _e _f _g _h _i _j _k)
    cusolverDnDSgels_bufferSize(_a _b _c _d _e _f _g _h _i _j _k)
    cusolverDnDHgels_bufferSize(_a _b _c _d _e _f _g _h _i _j _k)
    cusolverDnDBgels_bufferSize(_a _b _c _d _e _f _g _h _i _j _k)
    cusolverDnDXgels_bufferSize(_a _b _c _d _e _f _g _h _i _j _k)
    cusolverDnSSgels_bufferSize(_a _b _c _d _e _f _g _h _i _j _k)
    cusolverDnSHgels_bufferSize(_a _b _c _d _e _f _g _h _i _j _k)
    cusolverDnSBgels_bufferSize(_a _b _c _d _e _f _g _h _i _j _k)
    cusolverDnSXgels_bufferSize(_a _b _c _d _e _f _g _h _i _j _k)
    cusolverDnIRSXgesv_bufferSize(_a _b _c _d)
    cusolverDnIRSXgels_bufferSize(_a _b _c _d _e)
}

/// What the library itself answers of matrices in fp32 (cuSOLVER 12.0, asked on the host for 3,000 sizes): parts of whole 128 bytes. A matrix that
/// is not square is factored first. Of odd square sizes it is off by 128 bytes at most.
fn gesvdj_elements(rows: u64, columns: u64) -> u64 {
    let (least, most) = (rows.min(columns), rows.max(columns));
    let (square, blocks) = (least * least, least.div_ceil(32));
    let pairs = square + least + blocks + 4 * blocks * blocks;
    let of_square = square.next_multiple_of(32) + pairs.next_multiple_of(32) + 1024 * (2 * blocks + 1);
    match least == most {
        true => of_square,
        false => square.next_multiple_of(32) + of_square.max((rows * columns).next_multiple_of(32)),
    }
}

#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "the library's signature")]
unsafe extern "C" fn cusolverDnSgesvdj_bufferSize(
    _handle: usize,
    _mode: usize,
    _is_economic: usize,
    rows: c_int,
    columns: c_int,
    _matrix: usize,
    _matrix_stride: usize,
    _values: usize,
    _left: usize,
    _left_stride: usize,
    _right: usize,
    _right_stride: usize,
    size: *mut c_int,
) -> c_int {
    // SAFETY: a place for the size by the API's contract.
    let Ok(place) = (unsafe { Slot::new(size) }) else { return INVALID_VALUE };
    let (Ok(rows), Ok(columns)) = (u32::try_from(rows), u32::try_from(columns)) else { return INVALID_VALUE };
    place.put(c_int::try_from(gesvdj_elements(rows.into(), columns.into())).unwrap_or(c_int::MAX));
    0
}

/// Functions of the generic API, with a workspace on the device and one on the host.
macro_rules! needs_nothing_twice {
    ($($name:ident($($parameter:ident)*))*) => {$(
        #[unsafe(no_mangle)]
        #[allow(clippy::too_many_arguments, reason = "the library's signature")]
        unsafe extern "C" fn $name($($parameter: usize,)* device: *mut usize, host: *mut usize) -> c_int {
            // SAFETY: places for the sizes by the API's contract.
            let places = unsafe { (Slot::new(device), Slot::new(host)) };
            let (Ok(device), Ok(host)) = places else { return INVALID_VALUE };
            device.put(0);
            host.put(0);
            0
        }
    )*};
}

needs_nothing_twice! {
    cusolverDnXtrtri_bufferSize(_a _b _c _d _e _f _g)
    cusolverDnXsytrs_bufferSize(_a _b _c _d _e _f _g _h _i _j _k)
    cusolverDnXpotrf_bufferSize(_a _b _c _d _e _f _g _h)
    cusolverDnXgetrf_bufferSize(_a _b _c _d _e _f _g _h)
    cusolverDnXsyevBatched_bufferSize(_a _b _c _d _e _f _g _h _i _j _k)
    cusolverDnXsyevdx_bufferSize(_a _b _c _d _e _f _g _h _i _j _k _l _m _n _o _p _q)
    cusolverDnXgeev_bufferSize(_a _b _c _d _e _f _g _h _i _j _k _l _m _n _o _p _q)
    cusolverDnXgesvd_bufferSize(_a _b _c _d _e _f _g _h _i _j _k _l _m _n _o _p _q _r)
    cusolverDnXgesvdp_bufferSize(_a _b _c _d _e _f _g _h _i _j _k _l _m _n _o _p _q _r)
    cusolverDnXgesvdr_bufferSize(_a _b _c _d _e _f _g _h _i _j _k _l _m _n _o _p _q _r _s _t _u)
    cusolverDnXlarft_bufferSize(_a _b _c _d _e _f _g _h _i _j _k _l _m _n _o)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::null_mut;

    #[test]
    fn workspaces_of_singular_values_are_the_librarys() {
        for (rows, columns, elements) in [
            (32, 32, 5184),
            (1024, 1024, 2_168_864),
            (300, 700, 300_032),
            (1024, 512, 821_792),
            (11008, 4096, 61_865_984),
        ] {
            assert_eq!(gesvdj_elements(rows, columns), elements, "{rows} x {columns}");
        }
    }

    #[test]
    fn sizes_are_written_and_null_is_refused() {
        let (mut handle, mut elements, mut bytes) = (0, 9, (9, 9));
        // SAFETY: every pointer is null or a local's.
        unsafe {
            assert_eq!(cusolverDnCreate(null_mut()), INVALID_VALUE);
            assert_eq!((cusolverDnCreate(&raw mut handle), handle != 0), (0, true));
            assert_eq!(cusolverDnSgetrf_bufferSize(handle, 4, 4, 0, 4, null_mut()), INVALID_VALUE);
            assert_eq!((cusolverDnSgetrf_bufferSize(handle, 4, 4, 0, 4, &raw mut elements), elements), (0, 0));
            let (device, host) = (&raw mut bytes.0, &raw mut bytes.1);
            assert_eq!(cusolverDnXpotrf_bufferSize(handle, 0, 0, 4, 0, 0, 4, 0, device, null_mut()), INVALID_VALUE);
            assert_eq!((cusolverDnXpotrf_bufferSize(handle, 0, 0, 4, 0, 0, 4, 0, device, host), bytes), (0, (0, 0)));
        }
    }
}
