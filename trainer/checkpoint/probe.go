package checkpoint

import (
	"fmt"
	"os"
	"path/filepath"
)

// Probe puts a file named by a token into the folder, by which others find out
// whether theirs is the same one. The token is to be random.
func (f *Folder) Probe(token string) error {
	if err := checkName(token); err != nil {
		return fmt.Errorf("checkpoint folder %s: probe: %w", f.dir, err)
	}
	file, err := os.OpenFile(f.probe(token), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		err = file.Close()
	}
	if err != nil {
		return fmt.Errorf("checkpoint folder %s: probe: %w", f.dir, cause(err))
	}
	return nil
}

// Sees reports whether a probe of that token is in the folder.
func (f *Folder) Sees(token string) bool {
	if checkName(token) != nil {
		return false
	}
	_, err := os.Lstat(f.probe(token))
	return err == nil
}

// Unprobe removes a probe. There need not be one.
func (f *Folder) Unprobe(token string) error {
	if err := checkName(token); err != nil {
		return fmt.Errorf("checkpoint folder %s: remove the probe: %w", f.dir, err)
	}
	if err := unlessGone(os.Remove(f.probe(token))); err != nil {
		return fmt.Errorf("checkpoint folder %s: remove the probe: %w", f.dir, cause(err))
	}
	return nil
}

func (f *Folder) probe(token string) string { return filepath.Join(f.dir, ".probe-"+token) }
