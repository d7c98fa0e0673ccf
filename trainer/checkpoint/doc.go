// Package checkpoint defines what a checkpoint is and stores checkpoints on
// disk.
//
// A checkpoint is the state of a training after some step: a folder of data
// files, and a manifest that lists which file holds which tensors. Every host
// has a folder of the same name, which holds some of the files:
//
//	f, err := checkpoint.OpenFolder(dir)
//	id := checkpoint.NewID(step, generation)
//	size, sum, err := f.Write(id, "ps-0.safetensors", fill)
//	// ... and once every file of every task is written:
//	err = f.WriteManifest(&checkpoint.Manifest{ID: id, Step: step, ...})
//	removed, err := f.Retain(3, "")
//
// [Candidates] merges the listings of all tasks' folders. Package
// checkpoint/choose takes the newest of these candidates whose files are all
// intact:
//
//	holding, err := f.List()
//	for _, c := range checkpoint.Candidates(places) { ... }
//
// # Crash safety
//
// [Folder.Write] renames a file to its final name only after the content has
// been flushed to disk. The manifest is written last, after all files of the
// checkpoint. So a process, host or disk that fails during a save does not
// damage earlier checkpoints. It leaves at most a folder without a manifest. A
// restore ignores such a folder, and [Folder.Retain] removes it later. The
// sizes and SHA-256 sums in the manifest reveal damaged files.
//
// # What it refuses
//
// [DecodeManifest] refuses a manifest that contradicts itself, so its caller
// may use the offsets and counts in it without checks. The package uses no
// network and does not interpret the content of the data files.
package checkpoint
