//! cuSPARSE: descriptors are opaque, products compute nothing and need no workspace, because NVIDIA does not document what
//! they need. A product of two sparse matrices is said to have no entries: how many it has, only its data could tell.
#![allow(non_snake_case)]

use std::collections::BTreeMap;
use std::ffi::{c_char, c_int};
use std::sync::{Mutex, PoisonError};

use crate::accepted::{creates, handled, needs_nothing};
use crate::boundary::Slot;
use crate::state;

/// `CUSPARSE_STATUS_INVALID_VALUE`.
const INVALID_VALUE: c_int = 3;
/// `CUSPARSE_STATUS_NOT_INITIALIZED`.
const NOT_INITIALIZED: c_int = 1;

/// Rows, columns and entries of matrices in compressed rows.
static SHAPES: Mutex<BTreeMap<usize, (i64, i64, i64)>> = Mutex::new(BTreeMap::new());

creates! {
    INVALID_VALUE;
    cusparseCreate cusparseCreateMatDescr cusparseCreateCsric02Info cusparseCreateBsric02Info
    cusparseCreateCsrilu02Info cusparseCreateBsrilu02Info cusparseCreateBsrsv2Info cusparseCreateBsrsm2Info
    cusparseCreateCsru2csrInfo cusparseCreateColorInfo cusparseCreatePruneInfo cusparseCreateSpVec
    cusparseCreateConstSpVec cusparseCreateDnVec cusparseCreateConstDnVec cusparseCreateConstCsr cusparseCreateCsc
    cusparseCreateConstCsc cusparseCreateBsr cusparseCreateConstBsr cusparseCreateCoo cusparseCreateConstCoo
    cusparseCreateBlockedEll cusparseCreateConstBlockedEll cusparseCreateSlicedEll cusparseCreateConstSlicedEll
    cusparseCreateDnMat cusparseCreateConstDnMat cusparseSpSV_createDescr cusparseSpSM_createDescr
    cusparseSpGEMM_createDescr
}

handled! {
    NOT_INITIALIZED;
    cusparseDestroy cusparseSetStream cusparseSetPointerMode cusparseDestroyMatDescr cusparseSetMatType
    cusparseSetMatFillMode cusparseSetMatDiagType cusparseSetMatIndexBase cusparseDestroyCsric02Info
    cusparseDestroyBsric02Info cusparseDestroyCsrilu02Info cusparseDestroyBsrilu02Info cusparseDestroyBsrsv2Info
    cusparseDestroyBsrsm2Info cusparseDestroyCsru2csrInfo cusparseDestroyColorInfo cusparseDestroyPruneInfo
    cusparseSgemvi cusparseDgemvi cusparseCgemvi cusparseZgemvi cusparseSbsrmv cusparseDbsrmv cusparseCbsrmv
    cusparseZbsrmv cusparseSbsrxmv cusparseDbsrxmv cusparseCbsrxmv cusparseZbsrxmv cusparseSbsrsv2_analysis
    cusparseDbsrsv2_analysis cusparseCbsrsv2_analysis cusparseZbsrsv2_analysis cusparseSbsrsv2_solve
    cusparseDbsrsv2_solve cusparseCbsrsv2_solve cusparseZbsrsv2_solve cusparseSbsrmm cusparseDbsrmm cusparseCbsrmm
    cusparseZbsrmm cusparseSbsrsm2_analysis cusparseDbsrsm2_analysis cusparseCbsrsm2_analysis
    cusparseZbsrsm2_analysis cusparseSbsrsm2_solve cusparseDbsrsm2_solve cusparseCbsrsm2_solve
    cusparseZbsrsm2_solve cusparseScsrilu02_numericBoost cusparseDcsrilu02_numericBoost
    cusparseCcsrilu02_numericBoost cusparseZcsrilu02_numericBoost cusparseScsrilu02_analysis
    cusparseDcsrilu02_analysis cusparseCcsrilu02_analysis cusparseZcsrilu02_analysis cusparseScsrilu02
    cusparseDcsrilu02 cusparseCcsrilu02 cusparseZcsrilu02 cusparseSbsrilu02_numericBoost
    cusparseDbsrilu02_numericBoost cusparseCbsrilu02_numericBoost cusparseZbsrilu02_numericBoost
    cusparseSbsrilu02_analysis cusparseDbsrilu02_analysis cusparseCbsrilu02_analysis cusparseZbsrilu02_analysis
    cusparseSbsrilu02 cusparseDbsrilu02 cusparseCbsrilu02 cusparseZbsrilu02 cusparseScsric02_analysis
    cusparseDcsric02_analysis cusparseCcsric02_analysis cusparseZcsric02_analysis cusparseScsric02 cusparseDcsric02
    cusparseCcsric02 cusparseZcsric02 cusparseSbsric02_analysis cusparseDbsric02_analysis cusparseCbsric02_analysis
    cusparseZbsric02_analysis cusparseSbsric02 cusparseDbsric02 cusparseCbsric02 cusparseZbsric02 cusparseSgtsv2
    cusparseDgtsv2 cusparseCgtsv2 cusparseZgtsv2 cusparseSgtsv2_nopivot cusparseDgtsv2_nopivot
    cusparseCgtsv2_nopivot cusparseZgtsv2_nopivot cusparseSgtsv2StridedBatch cusparseDgtsv2StridedBatch
    cusparseCgtsv2StridedBatch cusparseZgtsv2StridedBatch cusparseSgtsvInterleavedBatch
    cusparseDgtsvInterleavedBatch cusparseCgtsvInterleavedBatch cusparseZgtsvInterleavedBatch
    cusparseSgpsvInterleavedBatch cusparseDgpsvInterleavedBatch cusparseCgpsvInterleavedBatch
    cusparseZgpsvInterleavedBatch cusparseScsrgeam2 cusparseDcsrgeam2 cusparseCcsrgeam2 cusparseZcsrgeam2
    cusparseScsrcolor cusparseDcsrcolor cusparseCcsrcolor cusparseZcsrcolor cusparseSnnz_compress
    cusparseDnnz_compress cusparseCnnz_compress cusparseZnnz_compress cusparseScsr2csr_compress
    cusparseDcsr2csr_compress cusparseCcsr2csr_compress cusparseZcsr2csr_compress cusparseXcoo2csr cusparseXcsr2coo
    cusparseScsr2bsr cusparseDcsr2bsr cusparseCcsr2bsr cusparseZcsr2bsr cusparseSbsr2csr cusparseDbsr2csr
    cusparseCbsr2csr cusparseZbsr2csr cusparseSgebsr2gebsc cusparseDgebsr2gebsc cusparseCgebsr2gebsc
    cusparseZgebsr2gebsc cusparseXgebsr2csr cusparseSgebsr2csr cusparseDgebsr2csr cusparseCgebsr2csr
    cusparseZgebsr2csr cusparseScsr2gebsr cusparseDcsr2gebsr cusparseCcsr2gebsr cusparseZcsr2gebsr
    cusparseSgebsr2gebsr cusparseDgebsr2gebsr cusparseCgebsr2gebsr cusparseZgebsr2gebsr
    cusparseCreateIdentityPermutation cusparseXcoosortByRow cusparseXcoosortByColumn cusparseXcsrsort
    cusparseXcscsort cusparseScsru2csr cusparseDcsru2csr cusparseCcsru2csr cusparseZcsru2csr cusparseScsr2csru
    cusparseDcsr2csru cusparseCcsr2csru cusparseZcsr2csru cusparseHpruneDense2csr cusparseSpruneDense2csr
    cusparseDpruneDense2csr cusparseHpruneCsr2csr cusparseSpruneCsr2csr cusparseDpruneCsr2csr
    cusparseHpruneDense2csrByPercentage cusparseSpruneDense2csrByPercentage cusparseDpruneDense2csrByPercentage
    cusparseHpruneCsr2csrByPercentage cusparseSpruneCsr2csrByPercentage cusparseDpruneCsr2csrByPercentage
    cusparseCsr2cscEx2 cusparseDestroySpVec cusparseSpVecSetValues cusparseDestroyDnVec cusparseDnVecSetValues
    cusparseSpMatSetValues cusparseCooSetStridedBatch cusparseCsrSetStridedBatch cusparseBsrSetStridedBatch
    cusparseSpMatSetAttribute cusparseCsrSetPointers cusparseCscSetPointers cusparseCooSetPointers
    cusparseDestroyDnMat cusparseDnMatSetValues cusparseDnMatSetStridedBatch cusparseAxpby cusparseGather
    cusparseScatter cusparseRot cusparseSpVV cusparseSparseToDense cusparseDenseToSparse_analysis
    cusparseDenseToSparse_convert cusparseSpMV cusparseSpMV_preprocess cusparseSpSV_destroyDescr
    cusparseSpSV_analysis cusparseSpSV_solve cusparseSpSV_updateMatrix cusparseSpSM_destroyDescr
    cusparseSpSM_analysis cusparseSpSM_solve cusparseSpSM_updateMatrix cusparseSpMM_preprocess cusparseSpMM
    cusparseSpGEMM_destroyDescr cusparseSpGEMM_getNumProducts cusparseSpGEMM_copy cusparseSpGEMMreuse_compute
    cusparseSDDMM_preprocess cusparseSDDMM cusparseSpMMOp_createPlan cusparseSpMMOp cusparseSpMMOp_destroyPlan
}

needs_nothing! {
    INVALID_VALUE; c_int;
    cusparseSgemvi_bufferSize(_a _b _c _d _e)
    cusparseDgemvi_bufferSize(_a _b _c _d _e)
    cusparseCgemvi_bufferSize(_a _b _c _d _e)
    cusparseZgemvi_bufferSize(_a _b _c _d _e)
    cusparseSbsrsv2_bufferSize(_a _b _c _d _e _f _g _h _i _j _k)
    cusparseDbsrsv2_bufferSize(_a _b _c _d _e _f _g _h _i _j _k)
    cusparseCbsrsv2_bufferSize(_a _b _c _d _e _f _g _h _i _j _k)
    cusparseZbsrsv2_bufferSize(_a _b _c _d _e _f _g _h _i _j _k)
    cusparseSbsrsm2_bufferSize(_a _b _c _d _e _f _g _h _i _j _k _l _m)
    cusparseDbsrsm2_bufferSize(_a _b _c _d _e _f _g _h _i _j _k _l _m)
    cusparseCbsrsm2_bufferSize(_a _b _c _d _e _f _g _h _i _j _k _l _m)
    cusparseZbsrsm2_bufferSize(_a _b _c _d _e _f _g _h _i _j _k _l _m)
    cusparseScsrilu02_bufferSize(_a _b _c _d _e _f _g _h)
    cusparseDcsrilu02_bufferSize(_a _b _c _d _e _f _g _h)
    cusparseCcsrilu02_bufferSize(_a _b _c _d _e _f _g _h)
    cusparseZcsrilu02_bufferSize(_a _b _c _d _e _f _g _h)
    cusparseSbsrilu02_bufferSize(_a _b _c _d _e _f _g _h _i _j)
    cusparseDbsrilu02_bufferSize(_a _b _c _d _e _f _g _h _i _j)
    cusparseCbsrilu02_bufferSize(_a _b _c _d _e _f _g _h _i _j)
    cusparseZbsrilu02_bufferSize(_a _b _c _d _e _f _g _h _i _j)
    cusparseScsric02_bufferSize(_a _b _c _d _e _f _g _h)
    cusparseDcsric02_bufferSize(_a _b _c _d _e _f _g _h)
    cusparseCcsric02_bufferSize(_a _b _c _d _e _f _g _h)
    cusparseZcsric02_bufferSize(_a _b _c _d _e _f _g _h)
    cusparseSbsric02_bufferSize(_a _b _c _d _e _f _g _h _i _j)
    cusparseDbsric02_bufferSize(_a _b _c _d _e _f _g _h _i _j)
    cusparseCbsric02_bufferSize(_a _b _c _d _e _f _g _h _i _j)
    cusparseZbsric02_bufferSize(_a _b _c _d _e _f _g _h _i _j)
    cusparseSgebsr2gebsc_bufferSize(_a _b _c _d _e _f _g _h _i)
    cusparseDgebsr2gebsc_bufferSize(_a _b _c _d _e _f _g _h _i)
    cusparseCgebsr2gebsc_bufferSize(_a _b _c _d _e _f _g _h _i)
    cusparseZgebsr2gebsc_bufferSize(_a _b _c _d _e _f _g _h _i)
    cusparseScsr2gebsr_bufferSize(_a _b _c _d _e _f _g _h _i _j)
    cusparseDcsr2gebsr_bufferSize(_a _b _c _d _e _f _g _h _i _j)
    cusparseCcsr2gebsr_bufferSize(_a _b _c _d _e _f _g _h _i _j)
    cusparseZcsr2gebsr_bufferSize(_a _b _c _d _e _f _g _h _i _j)
    cusparseSgebsr2gebsr_bufferSize(_a _b _c _d _e _f _g _h _i _j _k _l _m)
    cusparseDgebsr2gebsr_bufferSize(_a _b _c _d _e _f _g _h _i _j _k _l _m)
    cusparseCgebsr2gebsr_bufferSize(_a _b _c _d _e _f _g _h _i _j _k _l _m)
    cusparseZgebsr2gebsr_bufferSize(_a _b _c _d _e _f _g _h _i _j _k _l _m)
}

needs_nothing! {
    INVALID_VALUE; usize;
    cusparseSbsrsv2_bufferSizeExt(_a _b _c _d _e _f _g _h _i _j _k)
    cusparseDbsrsv2_bufferSizeExt(_a _b _c _d _e _f _g _h _i _j _k)
    cusparseCbsrsv2_bufferSizeExt(_a _b _c _d _e _f _g _h _i _j _k)
    cusparseZbsrsv2_bufferSizeExt(_a _b _c _d _e _f _g _h _i _j _k)
    cusparseSbsrsm2_bufferSizeExt(_a _b _c _d _e _f _g _h _i _j _k _l _m)
    cusparseDbsrsm2_bufferSizeExt(_a _b _c _d _e _f _g _h _i _j _k _l _m)
    cusparseCbsrsm2_bufferSizeExt(_a _b _c _d _e _f _g _h _i _j _k _l _m)
    cusparseZbsrsm2_bufferSizeExt(_a _b _c _d _e _f _g _h _i _j _k _l _m)
    cusparseScsrilu02_bufferSizeExt(_a _b _c _d _e _f _g _h)
    cusparseDcsrilu02_bufferSizeExt(_a _b _c _d _e _f _g _h)
    cusparseCcsrilu02_bufferSizeExt(_a _b _c _d _e _f _g _h)
    cusparseZcsrilu02_bufferSizeExt(_a _b _c _d _e _f _g _h)
    cusparseSbsrilu02_bufferSizeExt(_a _b _c _d _e _f _g _h _i _j)
    cusparseDbsrilu02_bufferSizeExt(_a _b _c _d _e _f _g _h _i _j)
    cusparseCbsrilu02_bufferSizeExt(_a _b _c _d _e _f _g _h _i _j)
    cusparseZbsrilu02_bufferSizeExt(_a _b _c _d _e _f _g _h _i _j)
    cusparseScsric02_bufferSizeExt(_a _b _c _d _e _f _g _h)
    cusparseDcsric02_bufferSizeExt(_a _b _c _d _e _f _g _h)
    cusparseCcsric02_bufferSizeExt(_a _b _c _d _e _f _g _h)
    cusparseZcsric02_bufferSizeExt(_a _b _c _d _e _f _g _h)
    cusparseSbsric02_bufferSizeExt(_a _b _c _d _e _f _g _h _i _j)
    cusparseDbsric02_bufferSizeExt(_a _b _c _d _e _f _g _h _i _j)
    cusparseCbsric02_bufferSizeExt(_a _b _c _d _e _f _g _h _i _j)
    cusparseZbsric02_bufferSizeExt(_a _b _c _d _e _f _g _h _i _j)
    cusparseSgtsv2_bufferSizeExt(_a _b _c _d _e _f _g _h)
    cusparseDgtsv2_bufferSizeExt(_a _b _c _d _e _f _g _h)
    cusparseCgtsv2_bufferSizeExt(_a _b _c _d _e _f _g _h)
    cusparseZgtsv2_bufferSizeExt(_a _b _c _d _e _f _g _h)
    cusparseSgtsv2_nopivot_bufferSizeExt(_a _b _c _d _e _f _g _h)
    cusparseDgtsv2_nopivot_bufferSizeExt(_a _b _c _d _e _f _g _h)
    cusparseCgtsv2_nopivot_bufferSizeExt(_a _b _c _d _e _f _g _h)
    cusparseZgtsv2_nopivot_bufferSizeExt(_a _b _c _d _e _f _g _h)
    cusparseSgtsv2StridedBatch_bufferSizeExt(_a _b _c _d _e _f _g _h)
    cusparseDgtsv2StridedBatch_bufferSizeExt(_a _b _c _d _e _f _g _h)
    cusparseCgtsv2StridedBatch_bufferSizeExt(_a _b _c _d _e _f _g _h)
    cusparseZgtsv2StridedBatch_bufferSizeExt(_a _b _c _d _e _f _g _h)
    cusparseSgtsvInterleavedBatch_bufferSizeExt(_a _b _c _d _e _f _g _h)
    cusparseDgtsvInterleavedBatch_bufferSizeExt(_a _b _c _d _e _f _g _h)
    cusparseCgtsvInterleavedBatch_bufferSizeExt(_a _b _c _d _e _f _g _h)
    cusparseZgtsvInterleavedBatch_bufferSizeExt(_a _b _c _d _e _f _g _h)
    cusparseSgpsvInterleavedBatch_bufferSizeExt(_a _b _c _d _e _f _g _h _i _j)
    cusparseDgpsvInterleavedBatch_bufferSizeExt(_a _b _c _d _e _f _g _h _i _j)
    cusparseCgpsvInterleavedBatch_bufferSizeExt(_a _b _c _d _e _f _g _h _i _j)
    cusparseZgpsvInterleavedBatch_bufferSizeExt(_a _b _c _d _e _f _g _h _i _j)
    cusparseScsrgeam2_bufferSizeExt(_a _b _c _d _e _f _g _h _i _j _k _l _m _n _o _p _q _r _s)
    cusparseDcsrgeam2_bufferSizeExt(_a _b _c _d _e _f _g _h _i _j _k _l _m _n _o _p _q _r _s)
    cusparseCcsrgeam2_bufferSizeExt(_a _b _c _d _e _f _g _h _i _j _k _l _m _n _o _p _q _r _s)
    cusparseZcsrgeam2_bufferSizeExt(_a _b _c _d _e _f _g _h _i _j _k _l _m _n _o _p _q _r _s)
    cusparseSgebsr2gebsc_bufferSizeExt(_a _b _c _d _e _f _g _h _i)
    cusparseDgebsr2gebsc_bufferSizeExt(_a _b _c _d _e _f _g _h _i)
    cusparseCgebsr2gebsc_bufferSizeExt(_a _b _c _d _e _f _g _h _i)
    cusparseZgebsr2gebsc_bufferSizeExt(_a _b _c _d _e _f _g _h _i)
    cusparseScsr2gebsr_bufferSizeExt(_a _b _c _d _e _f _g _h _i _j)
    cusparseDcsr2gebsr_bufferSizeExt(_a _b _c _d _e _f _g _h _i _j)
    cusparseCcsr2gebsr_bufferSizeExt(_a _b _c _d _e _f _g _h _i _j)
    cusparseZcsr2gebsr_bufferSizeExt(_a _b _c _d _e _f _g _h _i _j)
    cusparseSgebsr2gebsr_bufferSizeExt(_a _b _c _d _e _f _g _h _i _j _k _l _m)
    cusparseDgebsr2gebsr_bufferSizeExt(_a _b _c _d _e _f _g _h _i _j _k _l _m)
    cusparseCgebsr2gebsr_bufferSizeExt(_a _b _c _d _e _f _g _h _i _j _k _l _m)
    cusparseZgebsr2gebsr_bufferSizeExt(_a _b _c _d _e _f _g _h _i _j _k _l _m)
    cusparseXcoosort_bufferSizeExt(_a _b _c _d _e _f)
    cusparseXcsrsort_bufferSizeExt(_a _b _c _d _e _f)
    cusparseXcscsort_bufferSizeExt(_a _b _c _d _e _f)
    cusparseScsru2csr_bufferSizeExt(_a _b _c _d _e _f _g _h)
    cusparseDcsru2csr_bufferSizeExt(_a _b _c _d _e _f _g _h)
    cusparseCcsru2csr_bufferSizeExt(_a _b _c _d _e _f _g _h)
    cusparseZcsru2csr_bufferSizeExt(_a _b _c _d _e _f _g _h)
    cusparseHpruneDense2csr_bufferSizeExt(_a _b _c _d _e _f _g _h _i _j)
    cusparseSpruneDense2csr_bufferSizeExt(_a _b _c _d _e _f _g _h _i _j)
    cusparseDpruneDense2csr_bufferSizeExt(_a _b _c _d _e _f _g _h _i _j)
    cusparseHpruneCsr2csr_bufferSizeExt(_a _b _c _d _e _f _g _h _i _j _k _l _m)
    cusparseSpruneCsr2csr_bufferSizeExt(_a _b _c _d _e _f _g _h _i _j _k _l _m)
    cusparseDpruneCsr2csr_bufferSizeExt(_a _b _c _d _e _f _g _h _i _j _k _l _m)
    cusparseHpruneDense2csrByPercentage_bufferSizeExt(_a _b _c _d _e _f _g _h _i _j _k)
    cusparseSpruneDense2csrByPercentage_bufferSizeExt(_a _b _c _d _e _f _g _h _i _j _k)
    cusparseDpruneDense2csrByPercentage_bufferSizeExt(_a _b _c _d _e _f _g _h _i _j _k)
    cusparseHpruneCsr2csrByPercentage_bufferSizeExt(_a _b _c _d _e _f _g _h _i _j _k _l _m _n)
    cusparseSpruneCsr2csrByPercentage_bufferSizeExt(_a _b _c _d _e _f _g _h _i _j _k _l _m _n)
    cusparseDpruneCsr2csrByPercentage_bufferSizeExt(_a _b _c _d _e _f _g _h _i _j _k _l _m _n)
    cusparseCsr2cscEx2_bufferSize(_a _b _c _d _e _f _g _h _i _j _k _l _m _n)
    cusparseSpVV_bufferSize(_a _b _c _d _e _f)
    cusparseSparseToDense_bufferSize(_a _b _c _d)
    cusparseDenseToSparse_bufferSize(_a _b _c _d)
    cusparseSpMV_bufferSize(_a _b _c _d _e _f _g _h _i)
    cusparseSpSV_bufferSize(_a _b _c _d _e _f _g _h _i)
    cusparseSpSM_bufferSize(_a _b _c _d _e _f _g _h _i _j)
    cusparseSpMM_bufferSize(_a _b _c _d _e _f _g _h _i _j)
    cusparseSpGEMM_workEstimation(_a _b _c _d _e _f _g _h _i _j _k)
    cusparseSpGEMM_compute(_a _b _c _d _e _f _g _h _i _j _k)
    cusparseSpGEMMreuse_workEstimation(_a _b _c _d _e _f _g _h)
    cusparseSpGEMMreuse_copy(_a _b _c _d _e _f _g _h)
    cusparseSDDMM_bufferSize(_a _b _c _d _e _f _g _h _i _j)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cusparseCreateCsr(matrix: *mut usize, rows: i64, columns: i64, entries: i64) -> c_int {
    // SAFETY: a place for the handle by the API's contract.
    let Ok(place) = (unsafe { Slot::new(matrix) }) else { return INVALID_VALUE };
    let handle = state::lock_streams().handle();
    SHAPES.lock().unwrap_or_else(PoisonError::into_inner).insert(handle, (rows, columns, entries));
    place.put(handle);
    0
}

#[unsafe(no_mangle)]
extern "C" fn cusparseDestroySpMat(matrix: usize) -> c_int {
    SHAPES.lock().unwrap_or_else(PoisonError::into_inner).remove(&matrix);
    if matrix == 0 { INVALID_VALUE } else { 0 }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cusparseSpMatGetSize(
    matrix: usize,
    rows: *mut i64,
    columns: *mut i64,
    entries: *mut i64,
) -> c_int {
    let shape = SHAPES.lock().unwrap_or_else(PoisonError::into_inner).get(&matrix).copied();
    // SAFETY: places for results by the API's contract.
    let places = unsafe { (Slot::new(rows), Slot::new(columns), Slot::new(entries)) };
    let (Some(shape), (Ok(rows), Ok(columns), Ok(entries))) = (shape, places) else { return INVALID_VALUE };
    rows.put(shape.0);
    columns.put(shape.1);
    entries.put(shape.2);
    0
}

/// The sum of two sparse matrices has no entries either.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "the library's signature")]
unsafe extern "C" fn cusparseXcsrgeam2Nnz(
    _handle: usize,
    _rows: c_int,
    _columns: c_int,
    _a: usize,
    _a_entries: c_int,
    _a_rows: usize,
    _a_columns: usize,
    _b: usize,
    _b_entries: c_int,
    _b_rows: usize,
    _b_columns: usize,
    _sum: usize,
    _sum_rows: usize,
    entries: *mut c_int,
) -> c_int {
    // SAFETY: a place for the result by the API's contract.
    unsafe { Slot::new(entries) }.map_or(INVALID_VALUE, |place| {
        place.put(0);
        0
    })
}

/// No pivot is zero, which minus one says.
#[unsafe(no_mangle)]
unsafe extern "C" fn cusparseXbsrsm2_zeroPivot(_handle: usize, _info: usize, position: *mut c_int) -> c_int {
    // SAFETY: as above.
    unsafe { Slot::new(position) }.map_or(INVALID_VALUE, |place| {
        place.put(-1);
        0
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cusparseXbsrsv2_zeroPivot(handle: usize, info: usize, position: *mut c_int) -> c_int {
    // SAFETY: the same contract.
    unsafe { cusparseXbsrsm2_zeroPivot(handle, info, position) }
}

#[unsafe(no_mangle)]
extern "C" fn cusparseGetErrorString(status: c_int) -> *const c_char {
    let text = match status {
        0 => c"success",
        1 => c"initialization error",
        INVALID_VALUE => c"invalid value",
        10 => c"operation not supported",
        _ => c"unrecognized error code",
    };
    text.as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::null_mut;

    #[test]
    fn shapes_are_kept_and_null_is_refused() {
        let (mut matrix, mut bytes, mut shape) = (0, 9, [0; 3]);
        let [rows, columns, entries] = &mut shape;
        // SAFETY: every pointer is null or a local's.
        unsafe {
            assert_eq!(cusparseCreateCsr(null_mut(), 2, 3, 4), INVALID_VALUE);
            assert_eq!(cusparseCreateCsr(&raw mut matrix, 2, 3, 4), 0);
            assert_eq!(cusparseSpMatGetSize(matrix, rows, columns, null_mut()), INVALID_VALUE);
            assert_eq!(cusparseSpMatGetSize(matrix, rows, columns, entries), 0);
            assert_eq!(cusparseSpMV_bufferSize(0, 0, 0, 0, 0, 0, 0, 0, 0, null_mut()), INVALID_VALUE);
            assert_eq!((cusparseSpMV_bufferSize(0, 0, 0, 0, 0, 0, 0, 0, 0, &raw mut bytes), bytes), (0, 0));
            assert_eq!((cusparseDestroySpMat(matrix), cusparseSpMatGetSize(matrix, rows, columns, entries)), (0, 3));
        }
        assert_eq!(shape, [2, 3, 4]);
    }
}
