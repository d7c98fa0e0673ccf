// Package cgocuda opens NVIDIA's driver through gorgonia.org/cu. It is the second
// binding of the driver beside package cuda: both pass internal/test/devicetest, so a
// mistake in the layout of a call shows as a difference between them.
//
//	CGO_ENABLED=1 go test -tags cuda ./trainer/executor/device/cgocuda
//
// It needs the build tag cuda, cgo and the header cuda.h of CUDA 11 or 12. Training
// programs always use package cuda: Gorgonia has code of its own behind the same tag,
// which needs cuDNN 8 and does not compile. The linker looks for libcuda. If it finds
// an empty libcuda.a, the test also starts on a host without the driver;
// scripts/check-cu.sh does that.
//
// Package cu does what it can. This package calls the driver itself, through cgo,
// for what cu lacks: pinned memory, graphs, names of errors, and launches with a
// block of parameters. cu's own launch wants a pointer per parameter, and allocates.
//
// The driver is bound once per process: PLX_CUDA of the first Open that succeeds
// holds for all later ones. No call waits for the GPU and none of a step allocates,
// except that asking an event that is not done allocates the 8 bytes of cu's error.
package cgocuda
