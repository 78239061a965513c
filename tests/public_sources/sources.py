"""Thirty public .cu files, fixed before the work on host code began, and what is tried of each.

Nothing of them is here but names: of repositories, files and kernels.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PublicSource:
    """A file of a public repository.

    Attributes:
        repository: `owner/name` on GitHub.
        commit: Of the repository.
        path: Of the file.
        kernels: Instances to compile; all kernels of the file if empty.
        include_dirs: Folders of the repository, or `owner/name` of another one.
        defines: Macros that its build gives.
    """

    repository: str
    commit: str
    path: str
    kernels: tuple[str, ...] = ()
    include_dirs: tuple[str, ...] = ()
    defines: tuple[tuple[str, str], ...] = ()


GLM = ("g-truc/glm", "b1fed407864225653dae04674f04014c92287a26")
SOURCES = (
    PublicSource(
        "BlinkDL/RWKV-LM",
        "524481d5099b38d9bc8ef1e89209161b86c8011b",
        "RWKV-v4/cuda/wkv_cuda.cu",
        kernels=("kernel_forward<float>", "kernel_backward<float>"),
        defines=(("Tmax", "128"),),
    ),
    PublicSource(
        "BlinkDL/RWKV-LM",
        "524481d5099b38d9bc8ef1e89209161b86c8011b",
        "RWKV-v5/cuda/wkv6_cuda.cu",
        kernels=(
            "kernel_forward<float>",
            "kernel_backward_101<bf16>",
            "kernel_backward_201<at::BFloat16>",
        ),
        defines=(("_N_", "64"), ("_T_", "128")),
    ),
    PublicSource(
        "BlinkDL/RWKV-LM",
        "524481d5099b38d9bc8ef1e89209161b86c8011b",
        "RWKV-v7/cuda/wkv7.cu",
        kernels=("kernel_forward<float>", "kernel_forward<at::Half>"),
        defines=(("_N_", "64"),),
    ),
    PublicSource(
        "tspeterkim/flash-attention-minimal",
        "00f8f46712d493665c900c32fa3a261c8ef3e20c",
        "flash.cu",
    ),
    PublicSource(
        "karpathy/llm.c",
        "f1e2ace651495b74ae22d45d1723443fd00ecd3a",
        "dev/cuda/softmax_forward.cu",
    ),
    PublicSource(
        "karpathy/llm.c",
        "f1e2ace651495b74ae22d45d1723443fd00ecd3a",
        "dev/cuda/layernorm_forward.cu",
    ),
    PublicSource(
        "karpathy/llm.c",
        "f1e2ace651495b74ae22d45d1723443fd00ecd3a",
        "dev/cuda/attention_forward.cu",
    ),
    PublicSource(
        "karpathy/llm.c",
        "f1e2ace651495b74ae22d45d1723443fd00ecd3a",
        "dev/cuda/adamw.cu",
    ),
    PublicSource(
        "Dao-AILab/causal-conv1d",
        "0d2252d161f25f7907bbd05985c08ab98d255874",
        "csrc/causal_conv1d_fwd.cu",
        kernels=(
            "causal_conv1d_fwd_kernel<"
            "Causal_conv1d_fwd_kernel_traits<128, 4, true, at::Half, float>>",
        ),
    ),
    PublicSource(
        "Dao-AILab/causal-conv1d",
        "0d2252d161f25f7907bbd05985c08ab98d255874",
        "csrc/causal_conv1d_update.cu",
        kernels=(
            "causal_conv1d_update_kernel<"
            "Causal_conv1d_update_kernel_traits<64, 4, float, float>, false>",
        ),
    ),
    PublicSource(
        "ashawkey/torch-ngp",
        "b6e080468925f0bb44827b4f8f0ed08291dcf8a9",
        "gridencoder/src/gridencoder.cu",
        kernels=(
            "kernel_grid<float, 3, 2>",
            "kernel_grid<at::Half, 3, 2>",
            "kernel_grid_backward<float, 3, 2, 2>",
            "kernel_grad_tv<float, 3, 2>",
        ),
    ),
    PublicSource(
        "ashawkey/torch-ngp",
        "b6e080468925f0bb44827b4f8f0ed08291dcf8a9",
        "raymarching/src/raymarching.cu",
        kernels=(
            "kernel_near_far_from_aabb<float>",
            "kernel_morton3D",
            "kernel_packbits<float>",
            "kernel_march_rays_train<float>",
            "kernel_composite_rays<float>",
        ),
    ),
    PublicSource(
        "lmnt-com/haste",
        "ceba32ecd3735062f25e56b08ef3143caa086753",
        "lib/gru_forward_gpu.cu.cc",
        kernels=(
            "PointwiseOperations<float, true, false>",
            "PointwiseOperations<float, true, true>",
        ),
    ),
    PublicSource(
        "graphdeco-inria/diff-gaussian-rasterization",
        "59f5f77e3ddbac3ed9db93ec2cfe99ed6c5d121d",
        "cuda_rasterizer/forward.cu",
        kernels=("preprocessCUDA<3>", "renderCUDA<3>"),
        include_dirs=("g-truc/glm", "."),
    ),
    PublicSource(
        "graphdeco-inria/diff-gaussian-rasterization",
        "59f5f77e3ddbac3ed9db93ec2cfe99ed6c5d121d",
        "cuda_rasterizer/backward.cu",
        kernels=("computeCov2DCUDA", "preprocessCUDA<3>", "renderCUDA<3>"),
        include_dirs=("g-truc/glm", "."),
    ),
    PublicSource(
        "astro-informatics/s2fft",
        "5e6a08222de1266c7bda6d2eb700391026881e41",
        "lib/src/s2fft_kernels.cu",
        kernels=(
            "s2fftKernels::spectral_folding<float2>",
            "s2fftKernels::spectral_extension<double2>",
        ),
        include_dirs=("lib/include",),
    ),
    PublicSource(
        "NVIDIA/cuda-samples",
        "c94ff366aed18c797b8a85dfaac7817b0228b420",
        "Samples/2_Concepts_and_Techniques/reduction/reduction_kernel.cu",
        kernels=(
            "reduce0<float>",
            "reduce3<double>",
            "reduce6<double, 256, true>",
            "cg_reduce<float>",
        ),
        include_dirs=("Common",),
    ),
    PublicSource(
        "NVIDIA/cuda-samples",
        "c94ff366aed18c797b8a85dfaac7817b0228b420",
        "Samples/6_Performance/transpose/transpose.cu",
        include_dirs=("Common",),
    ),
    PublicSource(
        "NVIDIA/cuda-samples",
        "c94ff366aed18c797b8a85dfaac7817b0228b420",
        "Samples/5_Domain_Specific/nbody/bodysystemcuda.cu",
        kernels=("integrateBodies<float>", "integrateBodies<double>"),
        include_dirs=("Common",),
    ),
    PublicSource(
        "NVIDIA/cuda-samples",
        "c94ff366aed18c797b8a85dfaac7817b0228b420",
        "Samples/2_Concepts_and_Techniques/histogram/histogram256.cu",
        include_dirs=("Common",),
    ),
    PublicSource(
        "NVIDIA/cuda-samples",
        "c94ff366aed18c797b8a85dfaac7817b0228b420",
        "Samples/2_Concepts_and_Techniques/convolutionSeparable/convolutionSeparable.cu",
        include_dirs=("Common",),
    ),
    PublicSource(
        "erikwijmans/Pointnet2_PyTorch",
        "b5ceb6d9ca0467ea34beb81023f96ee82228f626",
        "pointnet2_ops_lib/pointnet2_ops/_ext-src/src/ball_query_gpu.cu",
        include_dirs=("pointnet2_ops_lib/pointnet2_ops/_ext-src/include",),
    ),
    PublicSource(
        "erikwijmans/Pointnet2_PyTorch",
        "b5ceb6d9ca0467ea34beb81023f96ee82228f626",
        "pointnet2_ops_lib/pointnet2_ops/_ext-src/src/sampling_gpu.cu",
        kernels=("gather_points_kernel", "furthest_point_sampling_kernel<256>"),
        include_dirs=("pointnet2_ops_lib/pointnet2_ops/_ext-src/include",),
    ),
    PublicSource(
        "facebookresearch/pytorch3d",
        "9381c4016376345bb795b97c45a6c2de66db354a",
        "pytorch3d/csrc/knn/knn.cu",
        kernels=(
            "KNearestNeighborKernelV0<float>",
            "KNearestNeighborKernelV2<float, 3, 4>",
            "KNearestNeighborBackwardKernel",
        ),
        include_dirs=("pytorch3d/csrc",),
    ),
    PublicSource(
        "facebookresearch/pytorch3d",
        "9381c4016376345bb795b97c45a6c2de66db354a",
        "pytorch3d/csrc/rasterize_points/rasterize_points.cu",
        include_dirs=("pytorch3d/csrc",),
    ),
    PublicSource(
        "ShichenLiu/SoftRas",
        "b569bed5759cf2014f9b79c12ad10eef7b80ec34",
        "soft_renderer/cuda/soft_rasterize_cuda_kernel.cu",
        kernels=(
            "forward_soft_rasterize_inv_cuda_kernel<float>",
            "forward_soft_rasterize_cuda_kernel<float>",
            "backward_soft_rasterize_cuda_kernel<float>",
        ),
    ),
    PublicSource(
        "nosferalatu/SimpleGPUHashTable",
        "d3f5b74f3176f40120cd5dc61a8d4811302eb829",
        "src/linearprobing.cu",
    ),
    PublicSource(
        "fundamentalvision/Deformable-DETR",
        "11169a60c33333af00a4849f1808023eba96a931",
        "models/ops/src/cuda/ms_deform_attn_cuda.cu",
        kernels=(
            "ms_deformable_im2col_gpu_kernel<float>",
            "ms_deformable_col2im_gpu_kernel_shm_reduce_v2<float>",
        ),
        include_dirs=("models/ops/src",),
    ),
    PublicSource(
        "jakobtorben/GPU-LBMsim",
        "e9d708e962de1f6fd7a363844a1caa0e5b05e33f",
        "src/core_gpu.cu",
        kernels=("stream_collide_gpu",),
        include_dirs=("include",),
    ),
    PublicSource(
        "eliazonta/SpMV",
        "97094d80f0956ac43f2232784e06a6e225a503af",
        "src/parallel/parallel.cu",
    ),
)
