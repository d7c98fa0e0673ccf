// Package kernels has the computations of a compiled program as kernels for
// NVIDIA GPUs, and says how to launch them.
//
//	add, err := kernels.Binary(kernels.Float32, "+", n, n, n)
//	for _, l := range add.Launches {
//		launch(modules[l.Module].Function(l.Kernel), l.Grid, l.Block, l.Params(out, a, b))
//	}
//
// An [Operation] is a list of launches. Its constructor takes types and sizes
// and checks them; it knows no device and no address. The caller gives the
// addresses of the operands in the order of Operation.Operands.
//
// The kernels are CUDA C (*.cu, *.cuh), compiled to PTX by make kernels.
// [Modules] are the PTX files, which the driver compiles for its GPU. PTX 6.0
// and sm_70 suffice, so every driver since 2017 and every GPU since Volta
// can run them. They use no header and no library of NVIDIA's.
//
// # Bits
//
// A result depends on the operands and the shapes alone, and not on the
// GPU, its driver or the size of the grid. All sums have a fixed order. No
// kernel uses an approximate instruction, flushes subnormal numbers or adds
// atomically. Products are not fused with additions, except where the source
// calls fused.
//
// Operations on elements return the bits of package cpu, of the operations of
// package nn, and of package optimizer. The others differ from them by
// rounding. [Bounds] is the table: what is equal to the bit, and how far the rest
// may be off.
//
// # What it refuses
//
// It refuses operands of 2^31 elements or more, because kernels count in 32
// bits. Empty operands are allowed: such an operation has no launches.
package kernels
