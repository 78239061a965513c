// include/host_libraries/jge_cuda_libraries.h: handles and results of CUDA's libraries, which
// declarations of host functions name. Nothing here can be called.
#pragma once
#ifndef __CUDACC_RTC__  // NVRTC has the runtime's own
#include <jge_runtime_api.h>
#endif

#define JGE_HANDLE(name) typedef struct name##_of_jge* name;
JGE_HANDLE(cublasHandle_t)
JGE_HANDLE(cublasLtHandle_t)
JGE_HANDLE(cublasLtMatmulDesc_t)
JGE_HANDLE(cublasLtMatrixLayout_t)
JGE_HANDLE(cublasLtMatmulPreference_t)
JGE_HANDLE(cusparseHandle_t)
JGE_HANDLE(cusparseMatDescr_t)
JGE_HANDLE(cusparseSpMatDescr_t)
JGE_HANDLE(cusparseDnMatDescr_t)
JGE_HANDLE(cusparseDnVecDescr_t)
JGE_HANDLE(cusolverDnHandle_t)
JGE_HANDLE(cusolverSpHandle_t)
JGE_HANDLE(curandGenerator_t)
JGE_HANDLE(cudnnHandle_t)
JGE_HANDLE(cudnnTensorDescriptor_t)
JGE_HANDLE(cudnnFilterDescriptor_t)
JGE_HANDLE(cudnnConvolutionDescriptor_t)
JGE_HANDLE(ncclComm_t)
JGE_HANDLE(nvmlDevice_t)
JGE_HANDLE(nvrtcProgram)
JGE_HANDLE(MPI_Comm)
#undef JGE_HANDLE
typedef int cufftHandle;
#define JGE_RESULT(name) enum name : int { name##_of_jge };
JGE_RESULT(cublasStatus_t)
JGE_RESULT(cublasOperation_t)
JGE_RESULT(cublasComputeType_t)
JGE_RESULT(cublasMath_t)
JGE_RESULT(cublasPointerMode_t)
JGE_RESULT(cublasGemmAlgo_t)
JGE_RESULT(cusparseStatus_t)
JGE_RESULT(cusolverStatus_t)
JGE_RESULT(cufftResult)
JGE_RESULT(curandStatus_t)
JGE_RESULT(cudnnStatus_t)
JGE_RESULT(ncclResult_t)
JGE_RESULT(nvrtcResult)
#undef JGE_RESULT
typedef cublasStatus_t cublasStatus;
// Code that is not called may take their addresses.
#define JGE_GEMM(name, T)                                                                          \
  __device__ inline cublasStatus_t name(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, \
                                        int, int, const T*, const T*, int, const T*, int,          \
                                        const T*, T*, int) {                                       \
    return {};                                                                                     \
  }
#define JGE_STRIDED_GEMM(name, T)                                                                  \
  __device__ inline cublasStatus_t name(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, \
                                        int, int, const T*, const T*, int, long long, const T*,    \
                                        int, long long, const T*, T*, int, long long, int) {       \
    return {};                                                                                     \
  }
JGE_GEMM(cublasSgemm, float)
JGE_GEMM(cublasDgemm, double)
JGE_STRIDED_GEMM(cublasSgemmStridedBatched, float)
JGE_STRIDED_GEMM(cublasDgemmStridedBatched, double)
struct __half;
JGE_GEMM(cublasHgemm, __half)
JGE_STRIDED_GEMM(cublasHgemmStridedBatched, __half)
#undef JGE_GEMM
#undef JGE_STRIDED_GEMM
typedef unsigned long long nvtxRangeId_t;
struct nvtxEventAttributes_t;
namespace nvtx3 {
struct scoped_range {};
}  // namespace nvtx3
