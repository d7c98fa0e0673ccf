package executable_test

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/plx-run/plx/internal/test/executable"
)

// TestWrite writes scripts and executes them while other goroutines start children.
func TestWrite(t *testing.T) {
	dir, stop := t.TempDir(), make(chan struct{})
	var others sync.WaitGroup
	for range 4 {
		others.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					if err := exec.Command("/bin/true").Run(); err != nil {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	for i := range 100 {
		path := filepath.Join(dir, fmt.Sprint(i))
		if err := executable.Write(path, []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := exec.Command(path).Run(); err != nil {
			t.Errorf("script %d: %v", i, err)
			break
		}
	}
	close(stop)
	others.Wait()
}
