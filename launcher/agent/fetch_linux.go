package agent

import (
	"bufio"
	"context"
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

	"github.com/plx-run/plx/launcher/protocol"
)

// Bounds of what fetch reads of a host's own files.
const (
	maxManifest = 64 << 20
	maxKept     = 10_000 // checkpoints of one name
)

const manifestName = "manifest.json"

// fetch is "agent fetch": a Wanted comes in as one line of JSON; the list of
// the checkpoints of a name goes out, or the bytes of one file. What is listed
// is not verified but for manifests: whoever takes a file knows its sum.
func fetch(_ context.Context, args []string, std streams) error {
	if len(args) != 0 {
		return usage("fetch takes no arguments")
	}
	line, err := bufio.NewReader(io.LimitReader(std.in, protocol.MaxMessage)).ReadBytes('\n')
	var want Wanted
	if err == nil {
		err = json.Unmarshal(line, &want)
	}
	if err != nil {
		return fmt.Errorf("read what is wanted: %w", err)
	}
	dir, err := checkpointsOf(want.Name)
	if err != nil || dir == "" {
		return fmt.Errorf("checkpoints of %q: %w", want.Name, errors.Join(err, checkElement(want.Name)))
	}
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) && want.File == "" {
		return nil // none of that name
	}
	if err != nil {
		return fmt.Errorf("open checkpoints: %w", err)
	}
	defer root.Close() // only read
	if want.File != "" {
		return sendFile(root, want.File, std.out)
	}
	return listKept(root, json.NewEncoder(std.out))
}

// sendFile writes a file's bytes. Links do not lead out of the name's folder.
func sendFile(root *os.Root, name string, out io.Writer) error {
	if !fs.ValidPath(name) {
		return fmt.Errorf("%q is no file of a checkpoint", name)
	}
	info, err := root.Stat(name)
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no file", name)
	}
	if err != nil {
		return err
	}
	f, err := root.Open(name)
	if err != nil {
		return err
	}
	defer f.Close() // only read
	_, err = io.Copy(out, f)
	return err
}

// listKept prints every folder with a manifest.
func listKept(root *os.Root, out *json.Encoder) error {
	n := 0
	return fs.WalkDir(root.FS(), ".", func(folder string, e fs.DirEntry, err error) error {
		if err != nil || !e.IsDir() {
			return nil // a folder that was removed meanwhile, or that nobody may read
		}
		if _, err := root.Lstat(path.Join(folder, manifestName)); err != nil || folder == "." {
			return nil
		}
		if n++; n > maxKept {
			return fmt.Errorf("more than %d checkpoints", maxKept)
		}
		kept := Kept{Folder: folder}
		if err := kept.read(root); err != nil {
			kept.Damage = err.Error()
		}
		if err := out.Encode(kept); err != nil {
			return err
		}
		return fs.SkipDir
	})
}

// read takes what the checkpoint's manifest says.
func (k *Kept) read(root *os.Root) error {
	f, err := root.Open(path.Join(k.Folder, manifestName))
	if err != nil {
		return err
	}
	defer f.Close() // only read
	text, err := io.ReadAll(io.LimitReader(f, maxManifest+1))
	if err == nil && len(text) > maxManifest {
		err = fmt.Errorf("more than %d bytes", maxManifest)
	}
	if err != nil {
		return err
	}
	files, made, err := filesOf(text)
	if err != nil {
		return err
	}
	for i := range files {
		info, err := root.Stat(path.Join(k.Folder, files[i].Name))
		files[i].Here = err == nil && info.Mode().IsRegular() && info.Size() == files[i].Size
	}
	own := sha256.Sum256(text)
	k.Made, k.Files = made, append(files, KeptFile{Name: manifestName, Size: int64(len(text)), Sum: hex.EncodeToString(own[:]), Here: true})
	return nil
}

// filesOf returns the files of a manifest, and when it was made, of which it needs
// to know no more:
// {"sum":"<SHA-256 of the bytes of checkpoint>","checkpoint":{"files":[...],...}}.
func filesOf(manifest []byte) (files []KeptFile, made time.Time, err error) {
	var envelope struct {
		Sum        string          `json:"sum"`
		Checkpoint json.RawMessage `json:"checkpoint"`
	}
	if err := json.Unmarshal(manifest, &envelope); err != nil {
		return nil, made, err
	}
	if sum := sha256.Sum256(envelope.Checkpoint); envelope.Sum != hex.EncodeToString(sum[:]) {
		return nil, made, errors.New("its sum is wrong: it is damaged")
	}
	var body struct {
		Time  time.Time  `json:"time"`
		Files []KeptFile `json:"files"`
	}
	if err := json.Unmarshal(envelope.Checkpoint, &body); err != nil {
		return nil, made, err
	}
	seen := map[string]bool{manifestName: true}
	for i, f := range body.Files {
		if sum, err := hex.DecodeString(f.Sum); err != nil || len(sum) != sha256.Size || f.Size < 0 ||
			!fs.ValidPath(f.Name) || path.Base(f.Name) != f.Name || seen[f.Name] {
			return nil, made, fmt.Errorf("file %d, %q, makes no sense", i, f.Name)
		}
		seen[f.Name], body.Files[i].Here = true, false
	}
	return body.Files, body.Time, nil
}
