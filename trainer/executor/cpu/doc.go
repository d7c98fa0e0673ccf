// Package cpu runs a compiled program on the CPU: it places the program's
// values in memory and computes each instruction with a kernel, a Go function.
//
//	machine, err := cpu.New(program, fixed, gorgonia.WhichBLAS())
//	copy(machine.Input(0), batch)
//	err = machine.Run(gradients, func(i int) { send(gradients[i]) })
//
// Kernels compute with float32 and float64. They allocate nothing and use one
// goroutine. The same inputs give the same bits wherever they lie in memory.
// Matrix products are calls of one BLAS library. An operation without a kernel
// is called the way Gorgonia calls it, and may allocate memory: see
// loader.call.
//
// Package executor calls only the function New and the methods Input, Output
// and Run of a Machine. A machine for another device, such as that of package
// gpu, has the same methods.
package cpu
