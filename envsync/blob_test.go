package envsync

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
)

// programBlob returns a blob with random content, which cannot be compressed.
func programBlob(t *testing.T, size int) (Blob, []byte) {
	t.Helper()
	content := make([]byte, size)
	random := rand.NewChaCha8([32]byte{})
	random.Read(content)
	return programOf(t, content), content
}

func programOf(t *testing.T, content []byte) Blob {
	t.Helper()
	path := filepath.Join(t.TempDir(), "train")
	if err := os.WriteFile(path, content, 0o755); err != nil {
		t.Fatal(err)
	}
	b, err := FileBlob(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func TestFileBlobHashesTheFile(t *testing.T) {
	b := programOf(t, []byte("abc"))
	if b.Name != "train" || b.Size != 3 || b.Sum != "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" {
		t.Errorf("%+v", b)
	}
	for path, want := range map[string]string{
		t.TempDir():           "it is not a regular file",
		b.Path + ".not-there": "no such file or directory",
	} {
		if _, err := FileBlob(path); err == nil || err.Error() != "read "+path+": "+want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestPackedCompressesOnlyLargeCompressibleBlobs(t *testing.T) {
	content := bytes.Repeat([]byte("plx program\x00"), 100_000)
	b := programOf(t, content)
	packed, err := b.Packed()
	if err != nil || len(packed) == 0 || len(packed) > len(content)/4 {
		t.Fatalf("%d bytes, %v", len(packed), err)
	}
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(z); err != nil || !bytes.Equal(got, content) {
		t.Errorf("the content differs: %v", err)
	}
	if again, err := b.Packed(); err != nil || &again[0] != &packed[0] {
		t.Errorf("it was packed twice, %v", err)
	}
	for name, content := range map[string][]byte{"small": bytes.Repeat([]byte{'x'}, leastPacked-1), "random": nil} {
		b := programOf(t, content)
		if name == "random" {
			b, _ = programBlob(t, 300_000)
		}
		if packed, err := b.Packed(); err != nil || packed != nil {
			t.Errorf("%s: packed into %d bytes, %v", name, len(packed), err)
		}
	}
	gone := programOf(t, content)
	if err := os.Remove(gone.Path); err != nil {
		t.Fatal(err)
	}
	if _, err := gone.Packed(); !errors.Is(err, fs.ErrNotExist) || !strings.HasPrefix(err.Error(), "read it here: ") {
		t.Errorf("%v", err)
	}
}
