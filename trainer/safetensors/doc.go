// Package safetensors reads and writes files of tensors in the safetensors
// format, which many programs read without running anything that is in them.
//
//	n, err := safetensors.Write(w, map[string]string{"step": "40"}, []safetensors.Tensor{
//		{Name: "w1", Dtype: safetensors.F32, Shape: []int{784, 256}, Data: weights},
//	})
//
//	f, err := safetensors.Open(file, size)
//	info, ok := f.Tensor("w1")
//	row := make([]byte, 4*256)
//	err = f.ReadAt("w1", row, 100*4*256) // row 100 alone
//
// # The format
//
// Eight bytes hold the length N of the header, little-endian. N bytes of JSON
// in UTF-8 follow, spaces may fill them up, and then the data, to the end of
// the file:
//
//	{"__metadata__": {"step": "40"},
//	 "w1": {"dtype": "F32", "shape": [784, 256], "data_offsets": [0, 802816]}}
//
// Offsets count from the first byte of the data, the end is exclusive. Tensors
// lie one behind the other, each byte of the data is one tensor's. Numbers are
// little-endian and in C order. A scalar has the shape [], and a tensor with a
// dimension of 0 has no bytes.
//
// # What it promises
//
// The same arguments make the same bytes. Open reads the header alone, and
// what the header claims is checked before anything is allocated for it or
// read: a file that opens has all the bytes of all its tensors.
//
// # What it refuses
//
// Headers above 16 MiB, more than 64 dimensions, keys that come twice, tensors without a name, keys and
// types that the format does not have, and files that are longer or shorter
// than their header says. It reads all the format's types as bytes and
// converts no numbers. It notices no flipped bit in the data, the format has
// no checksums.
package safetensors
