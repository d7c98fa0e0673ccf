// Package checkpoint knows what a checkpoint is and keeps checkpoints on disk.
//
// A checkpoint is a folder of files that hold a training's state after some
// step, and a manifest that says which file holds what. The same folder name
// is used on every host, and each host has some of the files:
//
//	f, err := checkpoint.OpenFolder(dir)
//	id := checkpoint.NewID(step, generation)
//	size, sum, err := f.Write(id, "ps-0.safetensors", fill)
//	// ... and once every file of every task is written:
//	err = f.WriteManifest(&checkpoint.Manifest{ID: id, Step: step, ...})
//	removed, err := f.Retain(3, "")
//
// To go on from one, put together what every task's folder holds and take the
// first of the [Candidates] whose files are all there and have the right sums:
//
//	holding, err := f.List()
//	for _, c := range checkpoint.Candidates(places) { ... }
//
// # What survives
//
// A file has its name only once its content is on the disk, and a checkpoint
// its manifest only once all its files have. So a process, a host or a disk
// that stops in the middle leaves the checkpoints before as they were, and of
// the new one at most a folder without a manifest, which nobody restores and
// [Folder.Retain] removes later. Where the manifest is there, sizes and sums
// in it tell whole files from damaged ones.
//
// # What it refuses
//
// Manifests that do not add up: whoever holds a [Manifest] from
// [DecodeManifest] may index with what is in it. It knows no network and no
// other host, and nothing of what is inside the files.
package checkpoint
