package transporttest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/plx-run/plx/launcher/transport"
)

// testParallel checks that one connection can run many commands and copies at
// once: more than the number of sessions that an SSH server allows.
func testParallel(t *testing.T, open func(*testing.T) transport.Transport, copies int) {
	conn := opened(t, open)
	folder := t.TempDir()
	var all sync.WaitGroup
	for i := range 30 {
		all.Go(func() {
			var stdout bytes.Buffer
			in := fmt.Sprintf("task %d\n", i)
			err := conn.Run(t.Context(), "cat; sleep 0.05; exit "+fmt.Sprint(i), bytes.NewReader([]byte(in)), &stdout, nil)
			checkParallel(t, err, i)
			if stdout.String() != in {
				t.Errorf("run %d: stdout %q", i, stdout.String())
			}
		})
	}
	for i := range copies {
		all.Go(func() {
			copyAndCheckQuietly(t, conn, filepath.Join(folder, fmt.Sprint(i)), noise(byte(i), 10000))
		})
	}
	within(t, "all of them", all.Wait)
}

// checkParallel checks the same as checkStatus, but may be called from
// goroutines other than the test's.
func checkParallel(t *testing.T, err error, want int) {
	if (err != nil || want != 0) && transport.ExitStatus(err) != want {
		t.Errorf("run %d: %v", want, err)
	}
}

func copyAndCheckQuietly(t *testing.T, conn transport.Transport, path string, data []byte) {
	err := conn.Copy(t.Context(), bytes.NewReader(data), path)
	if err != nil {
		if !strings.Contains(err.Error(), "no more sessions") { // the error "no more sessions" is allowed, because all sessions may be in use
			t.Errorf("copy: %v", err)
		}
		return
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes arrived of %d, or others; %v", len(got), len(data), err)
	}
}
