package main

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
)

// archive makes the archives and the bare programs.
func (s *snapshot) archive(context.Context) error {
	for _, a := range s.Archives {
		for _, p := range s.of(a.IDs) {
			name, err := s.fill(a.Name, p)
			if err != nil {
				return err
			}
			for _, format := range a.Formats {
				switch format {
				case "binary":
					err = errors.Join(s.create(name, func(w io.Writer) error { return copyFile(w, p.path) }),
						os.Chmod(filepath.Join(s.out, name), 0o755))
				case "tar.gz":
					err = s.create(name+".tar.gz", func(w io.Writer) error { return s.tarball(w, a, p, name) })
				default:
					err = fmt.Errorf("archives: no format %q", format)
				}
				if err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// tarball writes a program and the files beside it, in a folder if a says so.
func (s *snapshot) tarball(w io.Writer, a archive, p program, folder string) error {
	if a.Wrap != "true" {
		folder = ""
	}
	packed := gzip.NewWriter(w)
	t := tar.NewWriter(packed)
	for _, f := range a.Files {
		found, err := filepath.Glob(f.Source)
		if err != nil || len(found) == 0 {
			return fmt.Errorf("archives: no file %s: %w", f.Source, errors.Join(err, os.ErrNotExist))
		}
		for _, source := range found {
			inside := source
			if f.StripParent {
				inside = path.Join(f.Destination, filepath.Base(source))
			}
			if err := s.add(t, path.Join(folder, inside), source); err != nil {
				return err
			}
		}
	}
	if err := s.add(t, path.Join(folder, filepath.Base(p.path)), p.path); err != nil {
		return err
	}
	return errors.Join(t.Close(), packed.Close())
}

// add adds a file to an archive. It has the time of the commit, and is root's.
func (s *snapshot) add(t *tar.Writer, name, source string) error {
	info, err := os.Stat(source)
	if err != nil {
		return err
	}
	header := &tar.Header{Name: name, Size: info.Size(), Mode: int64(info.Mode().Perm()), ModTime: s.commit, Uname: "root", Gname: "root"}
	if err := t.WriteHeader(header); err != nil {
		return err
	}
	return copyFile(t, source)
}

func copyFile(w io.Writer, source string) error {
	f, err := os.Open(source)
	if err != nil {
		return err
	}
	defer f.Close() // only read
	_, err = io.Copy(w, f)
	return err
}
