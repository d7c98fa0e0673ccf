//go:build linux

package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path"
	"time"

	"github.com/plx-run/plx/launcher/agent/jobfolder"
	"github.com/plx-run/plx/launcher/protocol"
)

// Bounds of what fetch reads.
const (
	maxManifest = 64 << 20 // bytes
	maxKept     = 10_000   // checkpoints of one name
)

const manifestName = "manifest.json"

// fetch writes the list of the checkpoints of a name, or the bytes of one file. It
// verifies manifests only; who takes another file knows its sum.
func fetch(_ context.Context, want protocol.FetchRequest, _ io.Reader, out io.Writer) error {
	dir, err := jobfolder.Checkpoints(want.Name)
	if err != nil || dir == "" {
		return fmt.Errorf("checkpoints of %q: %w", want.Name, errors.Join(err, jobfolder.CheckName(want.Name)))
	}
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) && want.File == "" {
		return nil // the name has no checkpoints
	}
	if err != nil {
		return fmt.Errorf("open checkpoints: %w", err)
	}
	defer root.Close() // only read
	if want.File != "" {
		return sendFile(root, want, out)
	}
	return listKept(root, json.NewEncoder(out))
}

// sendFile writes a part of a file. It follows no link out of the name's folder.
func sendFile(root *os.Root, want protocol.FetchRequest, out io.Writer) error {
	name := want.File
	if !fs.ValidPath(name) {
		return fmt.Errorf("%q is not the path of a file of a checkpoint", name)
	}
	info, err := root.Stat(name)
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a file", name)
	}
	if err != nil {
		return err
	}
	f, err := root.Open(name)
	if err != nil {
		return err
	}
	defer f.Close() // only read
	return copyPart(out, f, want.Offset, want.Size)
}

// copyPart writes the bytes of a file from offset to size; 0: to its end.
func copyPart(out io.Writer, f *os.File, offset, size int64) error {
	if size == 0 {
		size = math.MaxInt64
	}
	if offset < 0 || size < offset {
		return fmt.Errorf("bytes %d to %d are no part of a file", offset, size)
	}
	_, err := io.CopyBuffer(struct{ io.Writer }{out}, io.NewSectionReader(f, offset, size-offset), make([]byte, 256<<10))
	return err
}

// listKept prints every folder that has a manifest.
func listKept(root *os.Root, out *json.Encoder) error {
	n := 0
	return fs.WalkDir(root.FS(), ".", func(folder string, e fs.DirEntry, err error) error {
		if err != nil || !e.IsDir() {
			return nil // the folder was removed meanwhile, or cannot be read
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

// readManifest returns the files of the checkpoint in a folder, the manifest last,
// and when the checkpoint was made.
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

// filesOf returns the files that a manifest lists, and when it was made. Of a
// manifest it knows only
// {"sum":"<SHA-256 of the bytes of checkpoint>","checkpoint":{"files":[...],...}}.
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
