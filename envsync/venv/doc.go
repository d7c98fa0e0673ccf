// Package venv reads a Python virtual environment of the local machine, so
// that hosts can get a copy that works at a different path:
//
//	env, err := venv.Read(ctx, ".venv", venv.Options{Home: home, Cache: cache})
//	...
//	err = tree.Send(ctx, targets, env.Folder, nil) // and env.Base, unless it is nil
//	request := env.Request()                        // for package install, on a host
//
// # What it refuses
//
// It rejects a conda environment, because conda's programs contain the
// environment's path as binary data. It rejects an environment whose
// interpreter no longer exists or has another version than its packages. It
// installs nothing and changes no local file.
package venv
