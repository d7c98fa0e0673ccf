//go:build linux

package agent

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"time"

	"github.com/plx-run/plx/launcher/agent/jobfolder"
	"github.com/plx-run/plx/launcher/agent/outputs"
	"github.com/plx-run/plx/launcher/protocol"
)

// Limits on the sizes that the functions below accept.
const (
	maxManifest = 64 << 20 // largest size of a manifest in bytes
	maxKept     = 10_000   // maximum number of checkpoints saved under one name
)

const manifestName = "manifest.json"

// sendCheckpoints lists the checkpoints saved under the name want.Checkpoints,
// or sends one file of them. It verifies the checksum of a manifest before
// use. The receiver verifies every other file against the checksum in the
// manifest.
func sendCheckpoints(want protocol.FetchRequest, out io.Writer) error {
	dir, err := jobfolder.Checkpoints(want.Checkpoints)
	if err != nil {
		return fmt.Errorf("checkpoints of %q: %w", want.Checkpoints, err)
	}
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) && want.Name == "" {
		return nil // no job has saved a checkpoint under this name
	}
	if err != nil {
		return fmt.Errorf("open checkpoints: %w", err)
	}
	defer root.Close() // the folder was only read
	if want.Name == "" {
		return listKept(root, json.NewEncoder(out))
	}
	file, err := outputs.OpenIn(root, want.Name)
	if err != nil {
		return err
	}
	defer file.Close() // the file was only read
	return copyPart(out, file, want.Offset, want.Size)
}

// listKept writes one JSON object for each checkpoint folder, which is a
// folder that has a manifest.
func listKept(root *os.Root, out *json.Encoder) error {
	n := 0
	return fs.WalkDir(root.FS(), ".", func(folder string, e fs.DirEntry, err error) error {
		if err != nil || !e.IsDir() {
			return nil // skip a folder that was removed during the walk or cannot be read
		}
		if _, err := root.Lstat(path.Join(folder, manifestName)); err != nil || folder == "." {
			return nil
		}
		if n++; n > maxKept {
			return fmt.Errorf("more than %d checkpoints", maxKept)
		}
		kept := protocol.HostCheckpoint{Folder: folder}
		if kept.Files, kept.Made, err = readManifest(root, folder); err != nil {
			kept = protocol.HostCheckpoint{Folder: folder, Damage: err.Error()}
		}
		if err := out.Encode(kept); err != nil {
			return err
		}
		return fs.SkipDir
	})
}

// readManifest returns the files of the checkpoint in a folder, with the
// manifest last, and the time at which the checkpoint was made.
func readManifest(root *os.Root, folder string) (files []protocol.CheckpointFile, made time.Time, err error) {
	info, err := root.Stat(path.Join(folder, manifestName))
	if err == nil && info.Size() > maxManifest {
		err = fmt.Errorf("more than %d bytes", maxManifest)
	}
	if err != nil {
		return nil, made, err
	}
	text, err := root.ReadFile(path.Join(folder, manifestName))
	if err != nil {
		return nil, made, err
	}
	listed, made, err := filesOf(text)
	if err != nil {
		return nil, made, err
	}
	for _, f := range listed {
		info, err := root.Stat(path.Join(folder, f.Name))
		f.Here = err == nil && info.Mode().IsRegular() && info.Size() == f.Size
		files = append(files, f)
	}
	own := sha256.Sum256(text)
	return append(files, protocol.CheckpointFile{Name: manifestName, Size: int64(len(text)), Sum: hex.EncodeToString(own[:]), Here: true}), made, nil
}

// filesOf returns the files that a checkpoint's manifest lists, and the time
// at which the checkpoint was made. It verifies the manifest's own checksum
// and ignores other fields. The manifest is
//
//	{"sum":"<SHA-256 of the bytes of checkpoint>","checkpoint":{"time":...,"files":[...],...}}
func filesOf(manifest []byte) (files []protocol.CheckpointFile, made time.Time, err error) {
	var envelope struct {
		Sum        string          `json:"sum"`
		Checkpoint json.RawMessage `json:"checkpoint"`
	}
	if err := json.Unmarshal(manifest, &envelope); err != nil {
		return nil, made, err
	}
	if sum := sha256.Sum256(envelope.Checkpoint); envelope.Sum != hex.EncodeToString(sum[:]) {
		return nil, made, errors.New("the manifest is damaged: its checksum is wrong")
	}
	var body struct {
		Time  time.Time                 `json:"time"`
		Files []protocol.CheckpointFile `json:"files"`
	}
	if err := json.Unmarshal(envelope.Checkpoint, &body); err != nil {
		return nil, made, err
	}
	seen := map[string]bool{manifestName: true}
	for i, f := range body.Files {
		if sum, err := hex.DecodeString(f.Sum); err != nil || len(sum) != sha256.Size || f.Size < 0 ||
			!fs.ValidPath(f.Name) || path.Base(f.Name) != f.Name || seen[f.Name] {
			return nil, made, fmt.Errorf("the manifest is wrong: file %d, %q", i, f.Name)
		}
		seen[f.Name] = true
	}
	return body.Files, body.Time, nil
}
