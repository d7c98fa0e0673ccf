package artifacts

import (
	"context"
	"debug/buildinfo"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/plx-run/plx/envsync"
	"github.com/plx-run/plx/launcher/exit"
)

// agent returns plx itself for p. It takes the running binary self if that fits, else
// the binary of the release in the same folder, else it builds one from source.
func (s *Set) agent(ctx context.Context, self string, p envsync.Platform) (envsync.Blob, error) {
	if p == here && !needsLibc(self) {
		return envsync.FileBlob(self)
	}
	folder, release := filepath.Dir(self), "plx-"+p.OS+"-"+p.Arch
	if beside := filepath.Join(folder, release); exists(beside) {
		return envsync.FileBlob(beside)
	}
	hint := fmt.Sprintf("put %s of the same release into %s, or run plx from its source folder", release, folder)
	if source := sourceFolder(); source != "" {
		out := filepath.Join(s.scratch, p.OS+"-"+p.Arch, "plx")
		if err := goBuild(ctx, source, ".", out, p); err != nil && ctx.Err() == nil {
			return envsync.Blob{}, exit.WithHint(fmt.Errorf("build the agent: %w", err), hint)
		} else if err != nil {
			return envsync.Blob{}, err
		}
		return envsync.FileBlob(out)
	}
	if p == here {
		return envsync.FileBlob(self)
	}
	return envsync.Blob{}, exit.WithHint(fmt.Errorf("no agent for %s: neither plx's release nor its source is here", p), hint)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// needsLibc reports whether the binary was built with cgo. Such a binary may not start
// on a host with another C library.
func needsLibc(path string) bool {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return false
	}
	for _, s := range info.Settings {
		if s.Key == "CGO_ENABLED" {
			return s.Value == "1"
		}
	}
	return false
}

// sourceFolder returns the folder of plx's source that the working directory is in, or
// "".
func sourceFolder() string {
	dir, err := os.Getwd()
	for err == nil {
		text, readErr := os.ReadFile(filepath.Join(dir, "go.mod"))
		if readErr == nil {
			if strings.HasPrefix(string(text), "module github.com/plx-run/plx\n") {
				return dir
			}
			return ""
		}
		if parent := filepath.Dir(dir); parent != dir {
			dir = parent
			continue
		}
		break
	}
	return ""
}
