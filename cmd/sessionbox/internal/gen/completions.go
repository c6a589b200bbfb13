package main

import (
	"bytes"

	"github.com/sessionbox/sessionbox/cmd/sessionbox/internal/cli"
)

// completions are the scripts under the names that the shells look for.
func completions() (map[string][]byte, error) {
	files := map[string][]byte{}
	for shell, name := range map[string]string{"bash": "sessionbox.bash", "zsh": "_sessionbox", "fish": "sessionbox.fish"} {
		var b bytes.Buffer
		if err := cli.Completion(cli.Root(), shell, &b); err != nil {
			return nil, err
		}
		files["completions/"+name] = b.Bytes()
	}
	return files, nil
}
