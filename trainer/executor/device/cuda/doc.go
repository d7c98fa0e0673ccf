// Package cuda opens NVIDIA's driver, libcuda.so.1, at run time, without cgo and
// without a toolkit. It is the thinnest layer below package device.
//
//	gpu, err := cuda.Open(0)
//
// Every function of the driver that is called is named in calls.go, with the
// version in its name: drivers keep old versions of a function, so a program
// runs with every driver since CUDA 11.0. A device's primary context is shared
// by all that this process does on the device. The driver keeps the current
// context per thread, and Go moves goroutines between threads. So every call
// sets the context first and stays on its thread meanwhile.
//
// On platforms other than Linux, and in programs built with -tags nodlopen, Open
// returns an error.
package cuda
