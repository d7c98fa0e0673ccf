// Command gpucheck checks plx on a machine with a GPU, and measures it there. It is
// the program of the folder that "make gpu-check" builds; the folder's run.sh starts
// it. It needs no Go, compiler, root or network.
//
//	./run.sh                 all parts, in less than 5 minutes
//	./run.sh -quick          the same with small sizes, for a first look
//	./run.sh -out FOLDER     where gpu-check.json and gpu-check.md are written
//
// The parts are tests and benchmarks of plx, built by go test -c. What they print, their
// verdicts and what they measured, becomes the record. torch.py measures the same with
// PyTorch, where python3 has it.
//
// Each part runs in processes of its own and for a bounded time, because a fault of
// a GPU ends all work of its process, and a stuck GPU never answers. A failed part
// leaves the others as they are. The exit status is 0 if all parts passed, 1 if one
// failed, and 2 if there is no GPU or the command line is wrong.
//
// # What it refuses
//
// It changes no setting of a GPU, resets none, and uses one GPU only: the first of
// CUDA_VISIBLE_DEVICES, or the first of the machine.
package main
