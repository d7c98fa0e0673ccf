// Command gpucheck checks and measures plx on a machine with a GPU. "make
// gpu-check" builds a folder with this program and all that it needs; the
// folder's run.sh starts it. It needs no Go, compiler, root or network.
//
//	./run.sh                 all parts, in less than 5 minutes
//	./run.sh -quick          the same with small sizes, for a first look
//	./run.sh -out FOLDER     where gpu-check.json and gpu-check.md are written
//
// The parts are tests and benchmarks of plx, built by go test -c. Their
// verdicts and measurements become the record, gpu-check.json. If PyTorch is
// installed, torch.py measures the same operations with it.
//
// Each part runs in its own process with a timeout, because a fault of a GPU
// ends all work of the process, and a hung GPU never responds. A failed part
// does not affect the others. The exit status is 0 if no part failed, 1 if one
// failed, and 2 if there is no GPU or the command line is wrong.
//
// # Limits
//
// The program changes no settings of a GPU and resets none. It uses only one
// GPU: the first of CUDA_VISIBLE_DEVICES, or the first of the machine.
package main
