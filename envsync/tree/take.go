package tree

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/klauspost/compress/zstd"

	"github.com/plx-run/plx/internal/holes"
)

// maxWindow is the maximum zstd window in bytes, which is the memory that
// decompression needs.
const maxWindow = 64 << 20

// Download copies a manifest (list of files) and the contents of the files
// from a host into the local folder dir. From there they can be sent to other
// hosts. id is the manifest's ID. get must run Store.Upload on the host. The
// returned Folder reads its files from dir.
func Download(ctx context.Context, get func(context.Context, io.Writer) error, id Sum, dir string) (*Folder, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	stdout, out := io.Pipe()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		out.CloseWithError(get(ctx, out)) // if the error is nil, the reader gets io.EOF
	}()
	f, err := take(stdout, id, dir)
	if err == nil {
		_, err = io.Copy(io.Discard, stdout) // read up to the end, so that the host's command can exit by itself before it is cancelled
	}
	cancel(err)
	stdout.Close() // always nil for a pipe's reading end; no more data is needed
	<-ended
	if err != nil {
		return nil, fmt.Errorf("copy the working directory: %w", err)
	}
	return f, nil
}

func take(in io.Reader, id Sum, dir string) (*Folder, error) {
	r := bufio.NewReader(in)
	m, err := ReadManifest(r)
	if err != nil {
		return nil, err
	}
	if m.ID() != id {
		return nil, errors.New("the host has sent another list of files: its hash differs")
	}
	z, err := zstd.NewReader(r, zstd.WithDecoderMaxWindow(maxWindow))
	if err != nil {
		return nil, err
	}
	defer z.Close()
	f := &Folder{Manifest: m, contents: dir}
	for _, e := range m.Contents() {
		if err := takeFile(z, e, f.file(e)); err != nil {
			return nil, fmt.Errorf("%s: %w", shown(e.Path), err)
		}
	}
	return f, nil
}

func takeFile(r io.Reader, e Entry, file string) error {
	to, err := os.OpenFile(filepath.Clean(file), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	hash, w := sha256.New(), holes.NewWriter(to, 0)
	_, err = io.CopyN(io.MultiWriter(w, hash), r, e.Size)
	if err = errors.Join(err, w.Flush(), to.Close()); err == nil && Sum(hash.Sum(nil)) != e.Sum {
		err = errors.New("it was damaged on the way")
	}
	return err
}
