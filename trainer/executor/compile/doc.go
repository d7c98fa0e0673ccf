// Package compile turns a Gorgonia graph into a Program. The Program lists the
// values to compute, their order, the memory of each value, and after which
// instruction each gradient is complete.
//
// Graph starts from the requested results (the loss, gradients, outputs) and
// leaves out all vertices that these results do not need. It works in phases,
// one file each:
//
//	request.go   checks the Plan, refuses operations with hidden state
//	             or a wrong gradient, and adds the gradients to the graph
//	graph.go     translates vertices into values and merges equal values
//	decode.go    reads one of Gorgonia's operations, by reflection
//	simplify.go  rewrites one value into the form that its kernel takes,
//	             if the shapes suit the kernel
//	order.go     orders the instructions, early gradients first
//	memory.go    plans the arena, the one block that computed values share
//	compile.go   runs the phases; program.go defines their result
//
// Package compile computes nothing: it knows no kernels, no matrix library and
// no device. A package that runs a Program, such as executor/cpu, reads
// nothing of the graph except the Program.
package compile
