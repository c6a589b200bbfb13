package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/sessionbox/sessionbox/cmd/sessionbox/internal/render"
	"github.com/sessionbox/sessionbox/pkg/session"
	"github.com/spf13/cobra"
)

func (a *app) newCompletion() *cobra.Command {
	return &cobra.Command{
		Use:   "completion bash|zsh|fish",
		Short: "Print the completion script of a shell",
		Long: `Print the script that makes a shell complete verbs, flags, and the names of sessions
and tasks.

Exit status:
  0  printed
  2  usage`,
		Example: `  source <(sessionbox completion bash)
  sessionbox completion zsh > "${fpath[1]}/_sessionbox"
  sessionbox completion fish > ~/.config/fish/completions/sessionbox.fish`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef("completion: of which shell?").hintf("bash, zsh or fish")
			}
			return nil
		},
		ValidArgs: []string{"bash", "zsh", "fish"},
		RunE:      func(cmd *cobra.Command, args []string) error { return Completion(cmd.Root(), args[0], a.stdout) },
	}
}

// Completion writes the completion script of a shell.
func Completion(root *cobra.Command, shell string, w io.Writer) error {
	switch shell {
	case "bash":
		return root.GenBashCompletionV2(w, true)
	case "zsh":
		return root.GenZshCompletion(w)
	case "fish":
		return root.GenFishCompletion(w, true)
	}
	return usagef("no completion for %q", shell).hintf("bash, zsh or fish")
}

func completeWords(cmd *cobra.Command, flag string, words ...string) {
	cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
}

// completeTime bounds looking for what could be meant: a shell waits for it.
const completeTime = time.Second

// completeSessions completes names of sessions or, when wanted, of tasks as
// well; several says that more than one can be given.
func (a *app) completeSessions(tasks, several bool) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 && !several {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return a.refs(cmd.Context(), tasks, args, word), cobra.ShellCompDirectiveNoFileComp
	}
}

func (a *app) refs(ctx context.Context, tasks bool, have []string, word string) []string {
	m, err := session.New(session.Config{})
	if err != nil {
		return nil
	}
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, cancel := context.WithTimeout(ctx, completeTime)
	defer cancel()
	infos, err := m.List(ctx, session.ListOptions{})
	if err != nil {
		return nil
	}
	given := map[string]bool{}
	for _, h := range have {
		given[h] = true
	}
	name, _, wantsTask := strings.Cut(word, "/")
	var found []string
	for i := range infos {
		in := &infos[i]
		for _, ref := range []string{in.Name, in.ID} {
			switch {
			case ref == "" || ref == in.ID && in.Name != "" && (word == "" || !strings.HasPrefix(in.ID, name)):
			case tasks && wantsTask && ref == name:
				for t := range in.Tasks {
					found = append(found, fmt.Sprintf("%s/%d\t%s, %s", ref, in.Tasks[t].N, in.Tasks[t].State, render.Command(in.Tasks[t].Argv, true)))
				}
			case !wantsTask && strings.HasPrefix(ref, word) && !given[ref]:
				found = append(found, fmt.Sprintf("%s\t%s, %d running, %d left", ref, in.Box.Kind, in.Running, in.Leftovers))
			}
		}
	}
	return found
}

// completeExec completes SESSION, then commands as the shell would.
func (a *app) completeExec(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return a.refs(cmd.Context(), false, nil, word), cobra.ShellCompDirectiveNoFileComp
	}
	return nil, cobra.ShellCompDirectiveDefault
}

func (a *app) completeCommand(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveDefault
}
