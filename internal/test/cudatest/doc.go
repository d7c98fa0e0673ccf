// Package cudatest gives tests a libcuda.so.1 without a GPU. The library is C with the
// driver's symbols and argument layouts. The kernels in it are those of package
// kernels, compiled by g++ with host.cuh in place of CUDA's words. A program that opens
// the library, in this process or in another one, cannot tell it from a driver of one GPU.
//
//	driver := cudatest.Start(t, cudatest.Options{})
//	// PLX_CUDA and PLX_CUBLAS are set for this process and for what it starts.
//	gpu, err := cuda.Open(0)
//
// The stand-in is stricter than a driver where a mistake would show only on some
// machines. Every call wants its context current on the calling thread. A copy
// wants pinned memory. Pinned and allocated memory has contents that nobody would
// take for a result. Memory is not given back while work is left. What a kernel writes
// right before or after allocated memory is found.
//
// Work on a stream runs only while some event is asked whether it is done, a few
// pieces at a time, of streams that chance picks (Options.Seed). So work
// that lacks an event between two streams runs in a wrong order sooner or later,
// and a result that is read too early is wrong. The threads of a block take turns at
// barriers, in one order and then in the other: many a missing barrier shows, and
// threads that do not meet at one barrier always do. Valgrind finds the others, see
// [Watch].
//
// With Options.BLAS there is a stand-in for cuBLAS too, whose products are such work.
// Without it programs do not look for cuBLAS: a real one does not know this driver.
//
// A fault fails every later call, as on a GPU. The test that started the driver fails
// then, and prints the fault.
//
// With the variable PLX_TEST_GPU, Start leaves this machine's driver to the test, so
// that the same tests check a GPU: see internal/tools/gpucheck.
package cudatest
