//go:build linux

package agent

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/checkpoint"
	"github.com/plx-run/plx/trainer/optimizer"
)

// saved writes a checkpoint with the trainer's own code.
func (h *testHost) saved(dir string) *checkpoint.Manifest {
	h.t.Helper()
	f, err := checkpoint.OpenFolder(filepath.Join(h.home, ".plx", "ckpt", dir))
	if err != nil {
		h.t.Fatal(err)
	}
	m := &checkpoint.Manifest{ID: checkpoint.NewID(40, 1), Job: h.spec.Job, Generation: 1, Step: 40, Time: time.Unix(0, 0), VirtualWorkers: 2, Batch: 8,
		Optimizer: optimizer.Settings{Rule: optimizer.SGD},
		Variables: []checkpoint.Variable{{Name: "w", Dtype: "float32", Shape: []int{4}}},
		Parts: []checkpoint.Part{{Variable: "w", File: "ps-0.safetensors", Tensor: "w[0:3]", Count: 3, Rows: -1},
			{Variable: "w", File: "worker-0.safetensors", Tensor: "w[3:4]", Offset: 3, Count: 1, Rows: -1}}}
	for _, task := range []string{"ps:0", "worker:0"} {
		name := strings.Replace(task, ":", "-", 1) + ".safetensors"
		size, sum, err := f.Write(m.ID, name, func(w io.Writer) error {
			_, err := io.WriteString(w, "weights of "+task)
			return err
		})
		if err != nil {
			h.t.Fatal(err)
		}
		m.Files = append(m.Files, checkpoint.File{Name: name, Task: task, Size: size, Sum: sum})
	}
	if err := f.WriteManifest(m); err != nil {
		h.t.Fatal(err)
	}
	return m
}

// The agent finds and parses the manifests that the trainer writes, although
// the two packages have separate parsers.
func TestFetchListsCheckpointsOfTheTrainer(t *testing.T) {
	h := newHost(t, 1)
	m := h.saved("mnist/run 1")
	manifest, err := os.ReadFile(filepath.Join(h.home, ".plx", "ckpt", "mnist", "run 1", m.ID, manifestName))
	if err != nil {
		t.Fatal(err)
	}
	var want []protocol.CheckpointFile
	for _, f := range m.Files {
		want = append(want, protocol.CheckpointFile{Name: f.Name, Size: f.Size, Sum: f.Sum, Here: true})
	}
	want = append(want, protocol.CheckpointFile{Name: manifestName, Size: int64(len(manifest)), Sum: sumOf(string(manifest)), Here: true})
	out, failed := h.dial("start").pipe(protocol.DoFetch, protocol.FetchRequest{Checkpoints: "mnist"})
	if failed != nil {
		t.Fatal(failed)
	}
	if got := decode[protocol.HostCheckpoint](t, out); got.Folder != "run 1/"+m.ID || !got.Made.Equal(m.Time) || got.Damage != "" || !slices.Equal(got.Files, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// A damaged manifest never lists different files. If it lists the same files,
// the agent may accept it although the trainer would not.
func TestDamagedManifestsOfTheTrainer(t *testing.T) {
	h := newHost(t, 1)
	m := h.saved("mnist")
	manifest, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	good, _, err := filesOf(manifest)
	if err != nil || len(good) != len(m.Files) {
		t.Fatalf("%+v, %v", good, err)
	}
	for i := range manifest {
		if _, _, err := filesOf(manifest[:i]); err == nil && i < len(manifest)-1 { // only the final newline may be missing
			t.Errorf("cut after %d bytes of %d: no error", i, len(manifest))
		}
		for bit := range 8 {
			bad := slices.Clone(manifest)
			bad[i] ^= 1 << bit
			if files, _, err := filesOf(bad); err == nil && !slices.Equal(files, good) {
				t.Errorf("bit %d of byte %d flipped: %+v", bit, i, files)
			}
		}
	}
}
