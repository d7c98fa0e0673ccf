//go:build linux

package agent

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/plx-run/plx/launcher/protocol"
)

func sumOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// manifestOf returns the manifest of a checkpoint with the given files, in the
// format of package checkpoint.
func manifestOf(files map[string]string) string {
	var list []map[string]any
	for _, name := range slices.Sorted(maps.Keys(files)) {
		list = append(list, map[string]any{"name": name, "task": "ps:0", "size": len(files[name]), "sum": sumOf(files[name])})
	}
	body, _ := json.Marshal(map[string]any{"format": 1, "id": "x", "files": list}) // maps always encode
	return fmt.Sprintf("{\"sum\":%q,\"checkpoint\":%s}\n", sumOf(string(body)), body)
}

func (h *testHost) put(name, content string) {
	h.t.Helper()
	path := filepath.Join(h.home, ".plx", "ckpt", name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		h.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		h.t.Fatal(err)
	}
}

func TestFetchListsCheckpoints(t *testing.T) {
	h := newHost(t, 1)
	files := map[string]string{"ps-0.safetensors": "weights", "worker-0.safetensors": "more"}
	manifest := manifestOf(files)
	h.put("mnist/sub dir/000000000040-g0-5f3a9c1e/manifest.json", manifest)
	h.put("mnist/sub dir/000000000040-g0-5f3a9c1e/ps-0.safetensors", "weights")
	h.put("mnist/sub dir/000000000040-g0-5f3a9c1e/worker-0.safetensors", "cut") // of another size
	h.put("mnist/000000000080-g0-5f3a9c1e/ps-0.safetensors", "no manifest yet")
	h.put("mnist/000000000120-g0-5f3a9c1e/manifest.json", strings.Replace(manifest, "ps-0", "ps-1", 1))
	h.put("mnist/manifest.json", manifest) // a manifest at the top, not in a checkpoint's folder
	h.put("other/000000000040-g0-5f3a9c1e/manifest.json", manifest)

	l := h.dial("start")
	out, err := l.pipe(protocol.DoFetch, protocol.FetchRequest{Checkpoints: "mnist"})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]protocol.HostCheckpoint{}
	for line := range strings.Lines(out) {
		k := decode[protocol.HostCheckpoint](t, line)
		got[k.Folder] = k
	}
	whole := got["sub dir/000000000040-g0-5f3a9c1e"]
	want := []protocol.CheckpointFile{
		{Name: "ps-0.safetensors", Size: 7, Sum: sumOf("weights"), Here: true}, {Name: "worker-0.safetensors", Size: 4, Sum: sumOf("more"), Here: false},
		{Name: "manifest.json", Size: int64(len(manifest)), Sum: sumOf(manifest), Here: true},
	}
	if len(got) != 2 || !slices.Equal(whole.Files, want) || whole.Damage != "" {
		t.Errorf("got %+v", got)
	}
	if damaged := got["000000000120-g0-5f3a9c1e"]; !strings.Contains(damaged.Damage, "damaged") || damaged.Files != nil {
		t.Errorf("%+v, want its damage and no files", damaged)
	}
	if out, err := l.pipe(protocol.DoFetch, protocol.FetchRequest{Checkpoints: "never"}); out != "" || err != nil {
		t.Errorf("of an unknown name: %q, %v", out, err)
	}
}

func TestFetchSendsAFile(t *testing.T) {
	h := newHost(t, 1)
	h.put("mnist/a/ps-0.safetensors", "weights\x00\n")
	h.put("secret", "not of this name")
	if err := os.Symlink(filepath.Join(h.home, ".plx", "ckpt", "secret"), filepath.Join(h.home, ".plx", "ckpt", "mnist", "link")); err != nil {
		t.Fatal(err)
	}
	l := h.dial("start")
	const file = "weights\x00\n"
	for offset, want := range map[int64]string{0: file, 3: file[3:], int64(len(file) - 1): "\n", int64(len(file)): "", 1 << 40: ""} {
		if out, err := l.pipe(protocol.DoFetch, protocol.FetchRequest{Checkpoints: "mnist", Name: "a/ps-0.safetensors", Offset: offset}); out != want || err != nil {
			t.Errorf("from %d: %q, %v", offset, out, err)
		}
	}
	big := strings.Repeat("0123456789abcdef", 1<<16)
	h.put("mnist/a/big", big)
	for _, offset := range []int64{0, 1, 256<<10 - 1, 1<<20 - 1} {
		if out, err := l.pipe(protocol.DoFetch, protocol.FetchRequest{Checkpoints: "mnist", Name: "a/big", Offset: offset}); out != big[offset:] || err != nil {
			t.Errorf("a larger one from %d: %d bytes, %v", offset, len(out), err)
		}
	}
	for _, w := range []protocol.FetchRequest{{Checkpoints: "mnist", Name: "../secret"}, {Checkpoints: "mnist", Name: "/etc/passwd"}, {Checkpoints: "mnist", Name: "link"}, {Checkpoints: "mnist", Name: "a"}, {Checkpoints: "mnist", Name: "a/none"},
		{Checkpoints: "..", Name: "ckpt/secret"}, {Checkpoints: "", Name: ""}, {Checkpoints: "never", Name: "x"}, {Checkpoints: "mnist", Name: "a/ps-0.safetensors", Offset: -1}} {
		if out, err := l.pipe(protocol.DoFetch, w); out != "" || err == nil || err.Text == "" {
			t.Errorf("%+v: %q, %v", w, out, err)
		}
	}
}

// filesOf returns only valid paths, whatever the manifest contains.
func FuzzFilesOf(f *testing.F) {
	f.Add([]byte(manifestOf(map[string]string{"ps-0.safetensors": "x", "worker-0.safetensors": ""})))
	for _, body := range []string{`{}`, `{"files":[{"name":"../x","size":1,"sum":""}]}`, `[]`,
		`{"files":[{"name":"manifest.json","size":0,"sum":"` + sumOf("") + `"}]}`} {
		f.Add([]byte(fmt.Sprintf(`{"sum":%q,"checkpoint":%s}`, sumOf(body), body)))
	}
	f.Add([]byte(`{"sum":"","checkpoint":null}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		files, _, err := filesOf(text)
		if err != nil {
			return
		}
		for _, file := range files {
			if filepath.Base(file.Name) != file.Name || file.Name == manifestName || file.Name == "." || file.Size < 0 || len(file.Sum) != 64 || file.Here {
				t.Errorf("%+v", file)
			}
		}
	})
}
