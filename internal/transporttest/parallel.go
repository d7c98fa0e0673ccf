package transporttest

import (
	"bytes"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
)

// testParallel proves that more commands and copies than a server allows at
// once all come through on one connection.
func testParallel(t *testing.T, open func(*testing.T) Transport) {
	transport := opened(t, open)
	folder := t.TempDir()
	var all sync.WaitGroup
	for i := range 30 {
		all.Go(func() {
			var stdout bytes.Buffer
			in := fmt.Sprintf("task %d\n", i)
			err := transport.Run(t.Context(), "cat; sleep 0.05; exit "+fmt.Sprint(i), bytes.NewReader([]byte(in)), &stdout, nil)
			checkParallel(t, err, i)
			if stdout.String() != in {
				t.Errorf("run %d: stdout %q", i, stdout.String())
			}
		})
	}
	for i := range 10 {
		all.Go(func() {
			copyAndCheckQuietly(t, transport, filepath.Join(folder, fmt.Sprint(i)), noise(byte(i), 10000))
		})
	}
	within(t, "all of them", all.Wait)
}

// checkParallel is checkStatus for other goroutines than the test's.
func checkParallel(t *testing.T, err error, want int) {
	exit, is := err.(exitStatus)
	switch {
	case err == nil && want == 0:
	case !is || exit.ExitStatus() != want:
		t.Errorf("run %d: %v", want, err)
	}
}

func copyAndCheckQuietly(t *testing.T, transport Transport, path string, data []byte) {
	if err := transport.Copy(t.Context(), bytes.NewReader(data), int64(len(data)), path, 0o644); err != nil {
		t.Errorf("copy: %v", err)
	}
}
