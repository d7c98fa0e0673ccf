//go:build linux

package jobfolder

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/plx-run/plx/envsync/tree"
	"github.com/plx-run/plx/envsync/tree/store"
)

// mostSpares is how many spare working directories one host keeps: for the folders that
// were launched last.
const mostSpares = 4

// Spares returns the folder of the spare working directories.
func Spares() (string, error) {
	dir, err := Root()
	return filepath.Join(dir, "spares"), err
}

// spareOf returns the path of the spare working directory of a host for a Spec.Source.
// Each host has its own, also if several share a home.
func spareOf(host, source string) (dir string, err error) {
	if err := CheckName(source); err != nil {
		return "", fmt.Errorf("the source of the working directory: %w", err)
	}
	all, err := Spares()
	return filepath.Join(all, host+spareMark+source), err
}

// spareMark is between the host's name and the source.
const spareMark = "--"

// MakeSpare makes the spare working directory of a manifest, for the next job of the same
// source on the host with the name of f. It removes those of this host that were not used
// for longest.
func MakeSpare(ctx context.Context, f Folder, id tree.Sum, source string) error {
	files, err := Files()
	if err != nil {
		return err
	}
	dir, err := spareOf(f.Name(), source)
	if err != nil {
		return err
	}
	return errors.Join(removeSpares(f.Name(), dir), files.Spare(dir).Make(ctx, id))
}

// removeSpares removes all spare working directories of a host but the newest, and but the
// one in dir.
func removeSpares(host, dir string) error {
	all, err := AllSpares()
	if err != nil {
		return err
	}
	var others []fs.FileInfo
	for _, info := range all {
		if strings.HasPrefix(info.Name(), host+spareMark) && info.Name() != filepath.Base(dir) {
			others = append(others, info)
		}
	}
	slices.SortFunc(others, func(a, b fs.FileInfo) int {
		return cmp.Or(b.ModTime().Compare(a.ModTime()), strings.Compare(a.Name(), b.Name()))
	})
	var errs []error
	for _, info := range others[min(len(others), mostSpares-1):] {
		old := filepath.Join(filepath.Dir(dir), info.Name())
		free, err := SpareIsFree(old)
		if free {
			err = os.RemoveAll(old)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// AllSpares returns the spare working directories of all hosts that share this home.
func AllSpares() (all []fs.FileInfo, err error) {
	dir, err := Spares()
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list spare working directories: %w", err)
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil { // else another process has removed it
			all = append(all, info)
		}
	}
	return all, nil
}

// SpareIsFree reports whether no process makes the spare working directory in dir.
func SpareIsFree(dir string) (bool, error) {
	unlock, err := store.Open("").Spare(dir).Lock()
	if errors.Is(err, store.ErrBusy) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, unlock()
}
