package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// sboms lists the modules of each bare program.
func (s *snapshot) sboms(ctx context.Context) error {
	for _, b := range s.SBOMs {
		for _, p := range s.programs {
			name := "plx-" + p.os + "-" + p.arch
			document, err := s.fill(b.Documents[0], p, "ArtifactName", name)
			if err != nil {
				return err
			}
			if err := s.create(document, func(io.Writer) error { return nil }); err != nil { // the command writes it
				return err
			}
			words := []string{b.Cmd}
			for _, arg := range b.Args {
				words = append(words, strings.NewReplacer("$artifact", name, "$document", document).Replace(arg))
			}
			if err := command(ctx, s.out, nil, words...); err != nil {
				return fmt.Errorf("sboms: %w", err)
			}
		}
	}
	return nil
}

// checksums writes the hash of every released file.
func (s *snapshot) checksums(context.Context) error {
	sums, err := s.sums()
	if err != nil {
		return err
	}
	return s.create(s.Checksum.NameTemplate, func(w io.Writer) error {
		for _, name := range slices.Sorted(slices.Values(s.made)) {
			if _, err := fmt.Fprintf(w, "%s  %s\n", sums[name], name); err != nil {
				return err
			}
		}
		return nil
	})
}

// sums returns the hashes of the files that are made, by name.
func (s *snapshot) sums() (map[string]string, error) {
	sums := map[string]string{}
	for _, name := range s.made {
		f, err := os.Open(filepath.Join(s.out, name))
		if err != nil {
			return nil, err
		}
		hash := sha256.New()
		_, err = io.Copy(hash, f)
		f.Close() // only read
		if err != nil {
			return nil, err
		}
		sums[name] = fmt.Sprintf("%x", hash.Sum(nil))
	}
	return sums, nil
}
