// Package kernels contains the kernels for NVIDIA GPUs that compute the
// operations of a compiled program, and the parameters with which to launch
// them.
//
//	add, err := kernels.Binary(kernels.Float32, "+", n, n, n)
//	for _, l := range add.Launches {
//		launch(modules[l.Module].Function(l.Kernel), l.Grid, l.Block, l.Params(out, a, b))
//	}
//
// An [Operation] is a list of launches. Its constructor takes types and sizes
// and checks them; it needs no device and no addresses. The caller of
// Launch.Params passes the addresses of the operands in the order of
// Operation.Operands.
//
// The kernels are CUDA C (*.cu, *.cuh), which "make kernels" compiles to PTX.
// [Modules] returns the PTX files; the driver compiles them for its GPU. The
// files need PTX 6.0 and sm_70, which every driver since 2017 and every GPU
// since Volta support. They use no header and no library of NVIDIA's.
//
// TODO: no real GPU has run this. The tests compile the same sources with g++
// and run them on a CPU. That NVIDIA's driver accepts the PTX, and that a GPU
// returns the same bits, is unchecked.
//
// # Bits
//
// A result depends only on the operands and the shapes. It does not depend on
// the GPU, its driver or the size of the grid. All sums have a fixed order. No
// kernel uses an approximate instruction, flushes subnormal numbers to zero or
// adds atomically. Products are not fused with additions, except where the
// source calls the function fused.
//
// Elementwise operations return the same bits as package cpu, package nn and
// package optimizer. The other operations differ from them by rounding.
// [Bounds] lists the operations that differ, and by how much.
//
// # Limits
//
// Constructors refuse operands of 2^31 elements or more, because kernels count
// in 32 bits. Empty operands are allowed: such an operation has no launches.
package kernels
