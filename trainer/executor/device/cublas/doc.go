// Package cublas multiplies matrices on a GPU with NVIDIA's cuBLAS, which it
// loads at run time, without cgo and without the CUDA toolkit.
//
//	choice, err := cublas.Choose(os.Getenv("PLX_CUBLAS"), gpu)
//	if choice.Library != nil {
//		handle, err := choice.On(stream, workspace)
//		err = handle.Multiply(&cublas.Product{Count: 1, M: m, N: n, K: k, Out: out, A: a, B: b})
//	}
//
// The file name of cuBLAS ends in its version: libcublas.so.13, .12 or .11.
// Choose takes the newest version that works on the GPU. The file calls.go
// lists all functions of cuBLAS that the package calls; they are the same in
// all these versions.
//
// TODO: no real GPU has run this. The tests use a stand-in for cuBLAS;
// NVIDIA's library was never loaded.
//
// # Bits
//
// On GPUs of one type, one version of cuBLAS returns the same bits for the
// same product, if a handle uses one stream and its own workspace.
// Handle.prepare sets both. cuBLAS multiplies numbers in their own precision:
// this package does not let it use tensor cores that round float32 to TF32.
//
// # Memory
//
// A handle uses a workspace that its caller allocated. A product therefore
// allocates nothing and can be recorded in a CUDA graph.
//
// On platforms other than Linux, and in programs built with -tags nodlopen,
// Choose finds no cuBLAS.
package cublas
