package fetch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/launcher/console"
)

// big is the content of a file of several MiB.
var big = func() string {
	data := make([]byte, 4<<20)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(data) // never fails
	return string(data)
}()

// other has the same length as big, and differs from it in every byte.
var other = func() string {
	data := []byte(big)
	for i := range data {
		data[i] ^= 1
	}
	return string(data)
}()

const (
	bigFile = "outputs/h1/worker-0/a.pt"
	little  = 64 << 10 // upper bound for the bytes of all messages that are not file content
)

// ranBig creates the job's folder on hosts, with a file whose content is big.
func ranBig(t *testing.T, hosts int) *homes {
	h := newHomes(t, hosts)
	h.ran(map[string]string{"a.pt": big})
	return h
}

// partOf returns the path of the incomplete local copy of a file with this
// content.
func partOf(dir, content string) string {
	return filepath.Join(dir, filepath.Dir(bigFile), ".plx-"+sumOf(content)[:32])
}

// leaves creates an incomplete local file, as an interrupted fetch leaves it.
func leaves(t *testing.T, dir, content, part string) {
	t.Helper()
	name := partOf(dir, content)
	if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, []byte(part), 0o600)); err != nil {
		t.Fatal(err)
	}
}

// has fails the test unless the folder contains exactly these files, each with
// the content big.
func has(t *testing.T, dir string, files ...string) {
	t.Helper()
	if got := tree(t, dir); !slices.Equal(got, files) {
		t.Errorf("the folder has %q, want %q", got, files)
	}
	for _, name := range files {
		if text, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(text) != big {
			t.Errorf("%s: %d bytes, or others, %v", name, len(text), err)
		}
	}
}

var errCable = errors.New("somebody has pulled the cable")

// lostAfter breaks the connection to the host after n bytes have been
// received.
func (w *wire) lostAfter(n int64) {
	w.out = func([]byte) error {
		if w.came.Load() > n {
			return errCable
		}
		return nil
	}
}

// lostHalfway fetches a file from a host whose connection breaks, and returns
// the size of the incomplete local file.
func (h *homes) lostHalfway(dir string, after int64) int64 {
	h.t.Helper()
	h.anew(0).lostAfter(after)
	if err := h.fetchJob(dir); err == nil || !strings.Contains(err.Error(), "host h1: ") || !strings.Contains(err.Error(), errCable.Error()) {
		h.t.Fatalf("a host that is lost: %v", err)
	}
	info, err := os.Stat(partOf(dir, big))
	if err != nil {
		return 0
	}
	if text, err := os.ReadFile(partOf(dir, big)); err != nil || !strings.HasPrefix(big, string(text)) {
		h.t.Errorf("a part of %d bytes that are others, %v", len(text), err)
	}
	return info.Size()
}

// If the host is lost, the received bytes of a file are kept, and the next
// fetch transfers only the rest.
func TestInterruptedFetchIsResumed(t *testing.T) {
	h := ranBig(t, 1)
	dir := t.TempDir()
	first := h.lostHalfway(dir, 2<<20)
	if first < 1<<20 || first > 2<<20 {
		t.Fatalf("%d bytes are there of 2 MiB that came", first)
	}
	if got := tree(t, dir); len(got) != 1 {
		t.Errorf("%q", got)
	}
	second := h.lostHalfway(dir, 1<<20)
	if second <= first || second > first+1<<20 {
		t.Fatalf("then %d bytes are there, after %d and 1 MiB more that came", second, first)
	}
	w := h.anew(0)
	if err := h.fetchJob(dir); err != nil {
		t.Fatal(err)
	}
	if came, rest := w.came.Load(), int64(len(big))-second; came < rest || came > rest+little {
		t.Errorf("%d bytes came, want the rest of %d", came, rest)
	}
	has(t, dir, bigFile)
}

// If only a few bytes of a file were received, they are not kept.
func TestSmallPartIsNotKept(t *testing.T) {
	h, dir := ranBig(t, 1), t.TempDir()
	if n := h.lostHalfway(dir, minKept-1<<18); n != 0 {
		t.Errorf("a part of %d bytes", n)
	}
	has(t, dir)
}

// If a host is lost, the file is resumed from the next host that has it.
func TestNextHostResumesFile(t *testing.T) {
	h, dir := ranBig(t, 2), t.TempDir()
	h.anew(0).lostAfter(3 << 20)
	w := h.anew(1)
	// Recording fails on the host that is lost.
	if err := h.fetchJob(dir); err == nil || !strings.Contains(err.Error(), "record what was fetched") {
		t.Errorf("%v", err)
	}
	if came := w.came.Load(); came < 1<<20 || came > 2<<20 {
		t.Errorf("%d bytes came from the second host, want the rest of 1 MiB and some", came)
	}
	has(t, dir, bigFile, "outputs/h2/worker-0/a.pt")
}

// If the host is lost, a file of a checkpoint is resumed by the next fetch,
// too.
func TestInterruptedCheckpointIsResumed(t *testing.T) {
	h := newHomes(t, 1)
	h.checkpoint(newer, "w")
	body := fmt.Sprintf(`{"files":[{"name":"p","size":%d,"sum":%q}]}`, len(big), sumOf(big))
	h.write(0, ".plx/ckpt/mnist/"+newer+"/manifest.json", fmt.Sprintf(`{"sum":%q,"checkpoint":%s}`, sumOf(body), body))
	h.write(0, ".plx/ckpt/mnist/"+newer+"/p", big)
	dir := t.TempDir()
	h.anew(0).lostAfter(2 << 20)
	if err := h.fetch(dir); err == nil {
		t.Error("a host was lost, and there is no error")
	}
	w := h.anew(0)
	if err := h.fetch(dir); err != nil {
		t.Fatal(err)
	}
	if came := w.came.Load(); came > 3<<20 {
		t.Errorf("%d bytes came, want the rest of 2 MiB and some", came)
	}
	if got := tree(t, dir); !slices.Equal(got, []string{newer + "/manifest.json", newer + "/p"}) {
		t.Errorf("%q", got)
	}
	if text, err := os.ReadFile(filepath.Join(dir, newer, "p")); err != nil || string(text) != big {
		t.Errorf("%d bytes, or others, %v", len(text), err)
	}
}

// Whatever an incomplete file contains, store ends with the right file, and
// leaves no other file behind.
func TestAnyPartLeadsToRightFile(t *testing.T) {
	text, others := big[:1000], other[:1000]
	f := file{size: 1000, sum: sumOf(text)}
	for name, c := range map[string]struct {
		part    string
		offsets []int64 // offsets from which the file is requested
	}{
		"nothing":                     {"", []int64{0}},
		"a byte":                      {text[:1], []int64{1}},
		"half":                        {text[:500], []int64{500}},
		"all":                         {text, nil}, // no bytes are missing
		"wrong bytes":                 {others[:500], []int64{500, 0}},
		"all bytes are wrong":         {others, []int64{0}},
		"half of the bytes are wrong": {text[:300] + others[300:600], []int64{600, 0}},
		"more than all":               {text + "x", []int64{0}},
	} {
		dir := t.TempDir()
		path, part := filepath.Join(dir, "w"), filepath.Join(dir, ".plx-"+f.sum[:32])
		if err := os.WriteFile(part, []byte(c.part), 0o600); err != nil {
			t.Fatal(err)
		}
		var offsets []int64
		there, err := store(t.Context(), path, f, func(_ context.Context, to io.Writer, offset int64) error {
			offsets = append(offsets, offset)
			_, err := io.WriteString(to, text[offset:])
			return err
		})
		if got, failed := os.ReadFile(path); err != nil || failed != nil || there || string(got) != text || !slices.Equal(offsets, c.offsets) {
			t.Errorf("%s: from %d, want from %d, %d bytes, or others, %v, %v", name, offsets, c.offsets, len(got), err, failed)
		}
		if got := tree(t, dir); !slices.Equal(got, []string{"w"}) {
			t.Errorf("%s: left %q", name, got)
		}
	}
}

// Zeros in a file become holes and use no disk space, even if the host is lost
// while they are received and the next fetch resumes there.
func TestZerosBecomeHoles(t *testing.T) {
	const mega = 1 << 20
	text := make([]byte, 64*mega)
	copy(text[8*mega:9*mega], big)
	f := file{size: int64(len(text)), sum: sumOf(string(text))}
	path := filepath.Join(t.TempDir(), "w")
	fetch := func(to int64, failed error) (from int64, err error) {
		_, err = store(t.Context(), path, f, func(_ context.Context, out io.Writer, offset int64) error {
			from = offset
			_, err := out.Write(text[offset:to])
			return errors.Join(err, failed)
		})
		return from, err
	}
	if _, err := fetch(20*mega, errCable); !errors.Is(err, errCable) {
		t.Errorf("a host that is lost: %v", err)
	}
	if from, err := fetch(f.size, nil); err != nil || from != 20*mega {
		t.Errorf("it goes on at %d, %v", from, err)
	}
	got, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(got, text) {
		t.Errorf("%d bytes, or others, %v", len(got), err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if room := info.Sys().(*syscall.Stat_t).Blocks * 512; room > 2*mega {
		t.Errorf("the file takes %d bytes of the disk", room)
	}
}

// If an incomplete file has wrong bytes, the file is fetched again from its
// start.
func TestPartWithWrongBytesIsFetchedAgain(t *testing.T) {
	h, dir := ranBig(t, 1), t.TempDir()
	leaves(t, dir, big, other[:2<<20])
	w := h.anew(0)
	if err := h.fetchJob(dir); err != nil {
		t.Error(err)
	}
	if came, want := w.came.Load(), int64(len(big))+2<<20; came < want || came > want+little {
		t.Errorf("%d bytes came, want the half and all, %d", came, want)
	}
	has(t, dir, bigFile)
}

// If a file was replaced since an interrupted fetch, the new file is fetched.
// If it is replaced during the fetch, that is an error, and no incomplete file
// is kept.
func TestPartOfReplacedFileIsFetchedAgain(t *testing.T) {
	h, dir := newHomes(t, 1), t.TempDir()
	h.ran(map[string]string{"a.pt": other})
	leaves(t, dir, other, other[:2<<20])
	h.write(0, ".plx/jobs/j/h1/tasks/worker-0/a.pt", big)
	if err := h.fetchJob(dir); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(filepath.Join(dir, bigFile)); err != nil || string(text) != big {
		t.Errorf("%d bytes, or others, %v", len(text), err)
	}

	h, dir = ranBig(t, 1), t.TempDir()
	leaves(t, dir, big, big[:2<<20])
	h.anew(0).in = func(asked []byte) {
		if bytes.Contains(asked, []byte(`"name":"a.pt"`)) {
			h.write(0, ".plx/jobs/j/h1/tasks/worker-0/a.pt", other)
		}
	}
	if err := h.fetchJob(dir); err == nil || !strings.Contains(err.Error(), "its checksum is wrong") {
		t.Errorf("%v", err)
	}
	has(t, dir)
}

// stopped is a fetch that waits after half of the file until the test calls
// letGo.
type stopped struct {
	homes  *homes
	letGo  func()
	ended  chan error
	halted chan struct{} // closed when half of the file has been received
}

// stopHalfway begins a fetch.
func stopHalfway(t *testing.T, dir string) *stopped {
	t.Helper()
	s := &stopped{homes: ranBig(t, 1), ended: make(chan error, 1), halted: make(chan struct{})}
	w, gate := s.homes.anew(0), make(chan struct{})
	s.letGo = sync.OnceFunc(func() { close(gate) })
	t.Cleanup(s.letGo)
	halt := sync.OnceFunc(func() { close(s.halted) })
	w.out = func([]byte) error {
		if w.came.Load() > 2<<20 {
			halt()
			<-gate
		}
		return nil
	}
	go func() { s.ended <- s.homes.fetchJob(dir) }()
	s.wait(t, "half of the file", s.halted, nil)
	return s
}

func (s *stopped) wait(t *testing.T, what string, c <-chan struct{}, ended <-chan error) (err error) {
	t.Helper()
	select {
	case <-c:
	case err = <-ended:
	case <-time.After(patience.Limit):
		t.Fatalf("not within %s: %s", patience.Limit, what)
	}
	return err
}

// Two fetches into the same folder at the same time both succeed.
func TestTwoFetchesAtOnceSucceed(t *testing.T) {
	dir := t.TempDir()
	first := stopHalfway(t, dir)
	second := ranBig(t, 1)
	w := second.anew(0)
	if err := second.fetchJob(dir); err != nil {
		t.Errorf("the second: %v", err)
	}
	if came := w.came.Load(); came < int64(len(big)) {
		t.Errorf("%d bytes came to the second, which has the part of the first", came)
	}
	if text, err := os.ReadFile(filepath.Join(dir, bigFile)); err != nil || string(text) != big {
		t.Errorf("%d bytes, or others, %v", len(text), err)
	}
	first.letGo()
	if err := first.wait(t, "the end of the first", nil, first.ended); err != nil {
		t.Errorf("the first: %v", err)
	}
	has(t, dir, bigFile)
}

// If two fetches are interrupted, only one of them leaves an incomplete file,
// because a second one could not be resumed.
func TestSecondOfTwoFetchesLeavesNoPart(t *testing.T) {
	dir := t.TempDir()
	first := stopHalfway(t, dir)
	second := ranBig(t, 1)
	second.anew(0).lostAfter(3 << 20)
	if err := second.fetchJob(dir); err == nil {
		t.Error("a host was lost, and there is no error")
	}
	want, _ := filepath.Rel(dir, partOf(dir, big))
	if got := tree(t, dir); !slices.Equal(got, []string{want}) {
		t.Errorf("the folder has %q, want %q", got, want)
	}
	first.letGo()
	if err := first.wait(t, "the end of the first", nil, first.ended); err != nil {
		t.Errorf("the first: %v", err)
	}
	has(t, dir, bigFile)
}

// Many calls of store for the same file at the same time all succeed, as for a
// checkpoint that contains the same file twice.
func TestManyStoresOfOneFileSucceed(t *testing.T) {
	const text = "weights"
	f := file{size: int64(len(text)), sum: sumOf(text)}
	for round := range 200 {
		dir := t.TempDir()
		var all sync.WaitGroup
		for i := range 4 {
			all.Go(func() {
				_, err := store(t.Context(), filepath.Join(dir, fmt.Sprint("w", i)), f, func(_ context.Context, to io.Writer, offset int64) error {
					_, err := io.WriteString(to, text[offset:])
					return err
				})
				if err != nil {
					t.Errorf("round %d: %v", round, err)
				}
			})
		}
		all.Wait()
		if got := tree(t, dir); !slices.Equal(got, []string{"w0", "w1", "w2", "w3"}) {
			t.Errorf("round %d: %q", round, got)
		}
		if t.Failed() {
			return
		}
	}
}

// If the user interrupts a fetch, the received bytes are kept, as if the host
// were lost.
func TestInterruptByUserKeepsPart(t *testing.T) {
	h, dir := ranBig(t, 1), t.TempDir()
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	w := h.anew(0)
	w.out = func([]byte) error {
		if w.came.Load() > 2<<20 {
			leave()
		}
		return nil
	}
	err := Job(ctx, Request{Hosts: h.agents, Name: "mnist", Dir: dir, Outputs: patterns, Printer: console.NewPrinter(console.Terminal{Stderr: &h.said})})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	info, err := os.Stat(partOf(dir, big))
	if err != nil {
		t.Fatal(err)
	}
	next := h.anew(0)
	if err := h.fetchJob(dir); err != nil {
		t.Fatal(err)
	}
	if came, rest := next.came.Load(), int64(len(big))-info.Size(); came < rest || came > rest+little {
		t.Errorf("%d bytes came, want the rest of %d", came, rest)
	}
	has(t, dir, bigFile)
}

// All files of a host are fetched in one session.
func TestAllFilesOfHostUseOneSession(t *testing.T) {
	h, files := newHomes(t, 2), map[string]string{}
	for i := range 20 {
		files[fmt.Sprint("runs/", i)] = fmt.Sprint("of step ", i)
	}
	h.ran(files)
	h.checkpoint(older, "pw", "p")
	h.checkpoint(newer, "p", "w")
	one, two := h.anew(0), h.anew(1)
	dir := t.TempDir()
	if err := h.fetchJob(dir); err != nil {
		t.Fatal(err)
	}
	if got := tree(t, dir); len(got) != 6+2*20 {
		t.Errorf("%q", got)
	}
	if one.runs.Load() != 1 || two.runs.Load() != 1 {
		t.Errorf("%d and %d sessions", one.runs.Load(), two.runs.Load())
	}
}

// If a file has grown since its host listed it, other files that are fetched
// at the same time are not affected.
func TestGrowingFileDoesNotAffectOthers(t *testing.T) {
	h, files := newHomes(t, 1), map[string]string{"a.pt": "weights"}
	for i := range 20 {
		files[fmt.Sprint("runs/", i)] = fmt.Sprint("of step ", i)
	}
	h.ran(files)
	h.anew(0).in = func(asked []byte) {
		if bytes.Contains(asked, []byte(`"name":"a.pt"`)) {
			h.write(0, ".plx/jobs/j/h1/tasks/worker-0/a.pt", "weights and more")
		}
	}
	dir := t.TempDir()
	if err := h.fetchJob(dir); err != nil {
		t.Error(err)
	}
	for name, want := range files {
		if text, err := os.ReadFile(filepath.Join(dir, "outputs/h1/worker-0", name)); err != nil || string(text) != want {
			t.Errorf("%s: %q, %v", name, text, err)
		}
	}
}
