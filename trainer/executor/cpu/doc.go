// Package cpu runs a compiled program on the CPU: it places the program's
// values in memory and computes each instruction with a kernel.
//
//	machine, err := cpu.New(program, fixed, gorgonia.WhichBLAS())
//	copy(machine.Input(0), batch)
//	err = machine.Run(gradients, func(i int) { send(gradients[i]) })
//
// Kernels take float32 and float64. They allocate nothing and use one
// goroutine. The same inputs give the same bits wherever they lie in memory;
// products are calls of one BLAS library. An operation without a kernel is
// called the way Gorgonia calls it (call.go), and may allocate.
//
// Machine is the pattern for a machine on another device: New, Input, Output and
// Run are all that package executor calls.
package cpu
