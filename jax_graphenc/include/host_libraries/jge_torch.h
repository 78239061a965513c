// include/host_libraries/jge_torch.h: the names of PyTorch's headers that kernels and the
// declarations of host functions use. at::Half and at::BFloat16 are CUDA's own types, with
// PyTorch's arithmetic.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <jge_cuda_libraries.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#define C10_HOST __host__
#define C10_DEVICE __device__
#define C10_HOST_DEVICE __host__ __device__
#define C10_HOST_CONSTEXPR constexpr
#define C10_LAUNCH_BOUNDS_0 __launch_bounds__(256, 4)
#define C10_LAUNCH_BOUNDS_1(threads) __launch_bounds__(threads)
#define C10_LAUNCH_BOUNDS_2(threads, blocks) __launch_bounds__(threads, blocks)
#define C10_RESTRICT __restrict__
#define C10_UNUSED __attribute__((unused))
#define C10_WARP_SIZE 32
#define C10_ALWAYS_INLINE inline __attribute__((always_inline))
#define C10_CUDA_CHECK(call) (call)
#define C10_CUDA_KERNEL_LAUNCH_CHECK()
#define AT_CUDA_CHECK(call) (call)
#define TORCH_CHECK(...)
#define TORCH_INTERNAL_ASSERT(...)
#define AT_ASSERTM(...)
#define AT_ASSERT(...)
#define AT_ERROR(...)
#define TORCH_API
#define TORCH_EXTENSION_NAME extension
#define CUDA_KERNEL_LOOP_TYPE(i, n, type) \
  for (type i = type(blockIdx.x) * blockDim.x + threadIdx.x; i < (n); i += blockDim.x * gridDim.x)
#define CUDA_KERNEL_LOOP(i, n) CUDA_KERNEL_LOOP_TYPE(i, n, int)
#define CUDA_1D_KERNEL_LOOP CUDA_KERNEL_LOOP

namespace c10 {
using Half = ::__half;
using BFloat16 = ::__nv_bfloat16;
template <class T>
struct complex {
  T real_, imag_;
};
template <class T>
struct optional {
  optional() = default;
  template <class U>
  optional(const U&) {}
};
struct nullopt_t {};
constexpr nullopt_t nullopt{};
template <class T>
struct ArrayRef {};
using IntArrayRef = ArrayRef<int64_t>;
enum class DeviceType : int8_t { CPU, CUDA };
enum class ScalarType : int8_t {
  Byte,
  Char,
  Short,
  Int,
  Long,
  Half,
  Float,
  Double,
  Bool = 11,
  BFloat16 = 15
};
enum class MemoryFormat : int8_t { Contiguous, Preserve, ChannelsLast };
struct Device {};
struct TensorOptions {};
struct Scalar {};
struct Storage {};
struct Stream {};
namespace cuda {
struct CUDAStream {
  cudaStream_t stream() const { return nullptr; }
  operator cudaStream_t() const { return nullptr; }
};
struct CUDAGuard {
  template <class D>
  explicit CUDAGuard(const D&) {}
};
struct OptionalCUDAGuard : CUDAGuard {
  using CUDAGuard::CUDAGuard;
};
namespace compat {
using ::exp;
using ::log;
using ::max;
using ::min;
using ::pow;
using ::sqrt;
using ::tanh;
}  // namespace compat
}  // namespace cuda
}  // namespace c10

namespace at {
using c10::ArrayRef;
using c10::BFloat16;
using c10::Device;
using c10::DeviceType;
using c10::Half;
using c10::IntArrayRef;
using c10::MemoryFormat;
using c10::optional;
using c10::Scalar;
using c10::ScalarType;
using c10::Storage;
using c10::TensorOptions;
struct Tensor {};
using TensorList = ArrayRef<Tensor>;
struct Generator {};
struct PhiloxCudaState {
  uint64_t seed_, offset_;
};
template <class T, bool is_cuda>
struct AccumulateType {
  using type = T;
};
template <>
struct AccumulateType<Half, true> {
  using type = float;
};
template <>
struct AccumulateType<BFloat16, true> {
  using type = float;
};
template <class T, bool is_cuda>
using acc_type = typename AccumulateType<T, is_cuda>::type;
template <class T>
using opmath_type = acc_type<T, true>;
template <class T>
struct RestrictPtrTraits {
  typedef T* __restrict__ PtrType;
};
template <class T>
struct DefaultPtrTraits {
  typedef T* PtrType;
};
// Views of a tensor: usable in kernels, of which none can be passed from JAX.
template <class T, size_t N, template <class> class Pointer = DefaultPtrTraits,
          class Index = int64_t>
struct TensorAccessor {
  typename Pointer<T>::PtrType data_;
  const Index* sizes_;
  const Index* strides_;
  __host__ __device__ decltype(auto) operator[](Index i) const {
    if constexpr (N == 1) {
      return (data_[strides_[0] * i]);
    } else {
      return TensorAccessor<T, N - 1, Pointer, Index>{data_ + strides_[0] * i, sizes_ + 1,
                                                      strides_ + 1};
    }
  }
  __host__ __device__ Index size(Index i) const { return sizes_[i]; }
  __host__ __device__ Index stride(Index i) const { return strides_[i]; }
  __host__ __device__ auto data() const { return data_; }
};
template <class T, size_t N, template <class> class Pointer = DefaultPtrTraits,
          class Index = int64_t>
struct GenericPackedTensorAccessor {
  typename Pointer<T>::PtrType data_;
  Index sizes_[N];
  Index strides_[N];
  __host__ __device__ decltype(auto) operator[](Index i) const {
    return TensorAccessor<T, N, Pointer, Index>{data_, sizes_, strides_}[i];
  }
  __host__ __device__ Index size(Index i) const { return sizes_[i]; }
  __host__ __device__ Index stride(Index i) const { return strides_[i]; }
  __host__ __device__ auto data() const { return data_; }
};
template <class T, size_t N, template <class> class Pointer = DefaultPtrTraits>
using PackedTensorAccessor32 = GenericPackedTensorAccessor<T, N, Pointer, int32_t>;
template <class T, size_t N, template <class> class Pointer = DefaultPtrTraits>
using PackedTensorAccessor64 = GenericPackedTensorAccessor<T, N, Pointer, int64_t>;
template <class T, size_t N, template <class> class Pointer = DefaultPtrTraits,
          class Index = int64_t>
using PackedTensorAccessor = GenericPackedTensorAccessor<T, N, Pointer, Index>;
namespace cuda {
using c10::cuda::CUDAGuard;
using c10::cuda::CUDAStream;
using c10::cuda::OptionalCUDAGuard;
cudaStream_t getCurrentCUDAStream(int device = -1);
}  // namespace cuda
}  // namespace at

namespace torch {
using namespace at;
using at::Tensor;
using c10::nullopt;
using Dtype = c10::ScalarType;
namespace autograd {
using Variable = at::Tensor;
using variable_list = std::vector<at::Tensor>;
}  // namespace autograd
struct Library {};
}  // namespace torch

namespace pybind11 {
struct module_ {};
using module = module_;
struct object {};
struct bytes {};
struct dict {};
struct list {};
struct tuple {};
struct str {};
struct capsule {};
template <class T, int flags = 0>
struct array_t {};
}  // namespace pybind11
namespace py = pybind11;

// PyTorch's arithmetic of a half and another number: with a float in float, with an integer in
// half.
#define JGE_TORCH_MIXED(Half, op)                                                                \
  __host__ __device__ inline float operator op(Half a, float b) { return float(a) op b; }        \
  __host__ __device__ inline float operator op(float a, Half b) { return a op float(b); }        \
  __host__ __device__ inline double operator op(Half a, double b) {                              \
    return double(float(a)) op b;                                                                \
  }                                                                                              \
  __host__ __device__ inline double operator op(double a, Half b) {                              \
    return a op double(float(b));                                                                \
  }                                                                                              \
  __host__ __device__ inline Half operator op(Half a, int b) { return a op Half(float(b)); }     \
  __host__ __device__ inline Half operator op(int a, Half b) { return Half(float(a)) op b; }     \
  __host__ __device__ inline Half operator op(Half a, int64_t b) { return a op Half(float(b)); } \
  __host__ __device__ inline Half operator op(int64_t a, Half b) { return Half(float(a)) op b; }
#define JGE_TORCH_COMPARED(Half, op)                                                          \
  __host__ __device__ inline bool operator op(Half a, float b) { return float(a) op b; }      \
  __host__ __device__ inline bool operator op(float a, Half b) { return a op float(b); }      \
  __host__ __device__ inline bool operator op(Half a, int b) { return float(a) op float(b); } \
  __host__ __device__ inline bool operator op(Half a, double b) { return double(float(a)) op b; }
#define JGE_TORCH_HALF(Half)   \
  JGE_TORCH_MIXED(Half, +)     \
  JGE_TORCH_MIXED(Half, -)     \
  JGE_TORCH_MIXED(Half, *)     \
  JGE_TORCH_MIXED(Half, /)     \
  JGE_TORCH_COMPARED(Half, <)  \
  JGE_TORCH_COMPARED(Half, >)  \
  JGE_TORCH_COMPARED(Half, <=) \
  JGE_TORCH_COMPARED(Half, >=) \
  JGE_TORCH_COMPARED(Half, ==) \
  JGE_TORCH_COMPARED(Half, !=)
JGE_TORCH_HALF(__half)
JGE_TORCH_HALF(__nv_bfloat16)
#undef JGE_TORCH_MIXED
#undef JGE_TORCH_COMPARED
#undef JGE_TORCH_HALF

template <class T>
__device__ inline T gpuAtomicAdd(T* at, T value) {
  return atomicAdd(at, value);
}
template <class T>
__device__ inline void gpuAtomicAddNoReturn(T* at, T value) {
  atomicAdd(at, value);
}
template <class T>
__device__ inline void atomAdd(T* at, T value) {
  atomicAdd(at, value);
}
