// Package cublas multiplies matrices on a GPU by NVIDIA's cuBLAS, which it opens at
// run time, without cgo and without a toolkit.
//
//	choice, err := cublas.Choose(os.Getenv("PLX_CUBLAS"), gpu)
//	if choice.Library != nil {
//		handle, err := choice.On(stream, workspace)
//		err = handle.Multiply(&cublas.Product{Count: 1, M: m, N: n, K: k, Out: out, A: a, B: b})
//	}
//
// cuBLAS is a file whose name has the version: libcublas.so.13, .12, .11. The newest
// one that works on the GPU is taken. All functions that are called are named in
// calls.go; they are the same in all these versions.
//
// # Bits
//
// On GPUs of one type, one version of cuBLAS returns the same bits for the same
// product, if a handle has one stream and its own workspace. That is so here. Numbers
// are multiplied in their own precision: tensor cores that round float32 to TF32 are
// not used.
//
// # Memory
//
// A handle works in memory that its caller gives it, so that a product allocates
// nothing and can be recorded in a graph.
//
// On platforms other than Linux, and in programs built with -tags nodlopen, there is
// no cuBLAS.
package cublas
