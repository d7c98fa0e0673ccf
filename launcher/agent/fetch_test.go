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

// manifestOf is the manifest of a checkpoint with the given files, as package
// checkpoint writes it.
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

// fetch runs "agent fetch".
func (h *testHost) fetch(want protocol.FetchRequest) (out, stderr string, code int) {
	h.t.Helper()
	line, err := json.Marshal(want)
	if err != nil {
		h.t.Fatal(err)
	}
	cmd := h.command("fetch")
	var o, e strings.Builder
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(string(line)+"\n"), &o, &e
	_ = cmd.Run() // the exit status is returned
	return o.String(), e.String(), cmd.ProcessState.ExitCode()
}

func TestFetchListsWhatIsKept(t *testing.T) {
	h := newHost(t, 1)
	files := map[string]string{"ps-0.safetensors": "weights", "worker-0.safetensors": "more"}
	manifest := manifestOf(files)
	h.put("mnist/sub dir/000000000040-g0-5f3a9c1e/manifest.json", manifest)
	h.put("mnist/sub dir/000000000040-g0-5f3a9c1e/ps-0.safetensors", "weights")
	h.put("mnist/sub dir/000000000040-g0-5f3a9c1e/worker-0.safetensors", "cut") // of another size
	h.put("mnist/000000000080-g0-5f3a9c1e/ps-0.safetensors", "no manifest yet")
	h.put("mnist/000000000120-g0-5f3a9c1e/manifest.json", strings.Replace(manifest, "ps-0", "ps-1", 1))
	h.put("mnist/manifest.json", manifest) // no folder of its own
	h.put("other/000000000040-g0-5f3a9c1e/manifest.json", manifest)

	out, stderr, code := h.fetch(protocol.FetchRequest{Name: "mnist"})
	if code != 0 {
		t.Fatalf("exit status %d: %s", code, stderr)
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
	if out, _, code := h.fetch(protocol.FetchRequest{Name: "never"}); out != "" || code != 0 {
		t.Errorf("of an unknown name: %q, %d", out, code)
	}
}

func TestFetchSendsAFile(t *testing.T) {
	h := newHost(t, 1)
	h.put("mnist/a/ps-0.safetensors", "weights\x00\n")
	h.put("secret", "not of this name")
	if err := os.Symlink(filepath.Join(h.home, ".plx", "ckpt", "secret"), filepath.Join(h.home, ".plx", "ckpt", "mnist", "link")); err != nil {
		t.Fatal(err)
	}
	if out, stderr, code := h.fetch(protocol.FetchRequest{Name: "mnist", File: "a/ps-0.safetensors"}); out != "weights\x00\n" || code != 0 {
		t.Errorf("%q, exit status %d, %s", out, code, stderr)
	}
	for _, w := range []protocol.FetchRequest{{Name: "mnist", File: "../secret"}, {Name: "mnist", File: "/etc/passwd"}, {Name: "mnist", File: "link"}, {Name: "mnist", File: "a"}, {Name: "mnist", File: "a/none"},
		{Name: "..", File: "ckpt/secret"}, {Name: "", File: ""}, {Name: "never", File: "x"}} {
		if out, stderr, code := h.fetch(w); out != "" || code == 0 || stderr == "" {
			t.Errorf("%+v: %q, exit status %d, %q", w, out, code, stderr)
		}
	}
}

// Every name that is read from a manifest is a valid path.
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
