// Package compile turns a Gorgonia graph into a Program: which values to
// compute, in which order, where each of them lies in memory, and after which
// instruction each gradient is complete.
//
// Graph starts from what is wanted (the loss, gradients, outputs) and leaves
// out everything else. It works in phases, one file each:
//
//	request.go   checks what is wanted, refuses operations with hidden state or a
//	             wrong gradient, and adds the gradients to the graph
//	graph.go     translates vertices into values and merges equal values
//	decode.go    reads one of Gorgonia's operations, by reflection
//	simplify.go  rewrites a value into the form that its kernel takes, if the
//	             shapes suit one
//	order.go     orders the instructions, early gradients first
//	memory.go    plans the arena
//	compile.go   runs the phases; the result is in program.go
//
// Package compile computes nothing: it knows no kernels, no matrix library and
// no device. Whatever runs a Program (package executor/cpu does) needs nothing
// else from the graph.
package compile
