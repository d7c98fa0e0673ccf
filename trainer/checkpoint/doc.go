// Package checkpoint defines what a checkpoint is and keeps checkpoints on disk.
//
// A checkpoint is a folder of files that hold a training's state after some
// step, and a manifest that says which file holds what. Every host uses the
// same folder name, and has some of the files:
//
//	f, err := checkpoint.OpenFolder(dir)
//	id := checkpoint.NewID(step, generation)
//	size, sum, err := f.Write(id, "ps-0.safetensors", fill)
//	// ... and once every file of every task is written:
//	err = f.WriteManifest(&checkpoint.Manifest{ID: id, Step: step, ...})
//	removed, err := f.Retain(3, "")
//
// [Candidates] puts together what every task's folder holds. Package
// checkpoint/choose takes the first candidate that is good:
//
//	holding, err := f.List()
//	for _, c := range checkpoint.Candidates(places) { ... }
//
// # What survives
//
// A file gets its name only after its content is on the disk, and a checkpoint
// gets its manifest only after all its files. So a process, a host or a disk that
// stops in the middle leaves earlier checkpoints as they were. Of the new one it
// leaves at most a folder without a manifest, which nobody restores and
// [Folder.Retain] removes later. The sizes and sums in a manifest tell whole
// files from damaged ones.
//
// # What it refuses
//
// It refuses manifests that contradict themselves: the caller may use offsets
// and counts of a [Manifest] from [DecodeManifest] without checks. The package
// knows no network, no other host, and nothing about the content of files.
package checkpoint
