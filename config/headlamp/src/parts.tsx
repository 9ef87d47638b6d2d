// What several pages show alike.
import {
  DateLabel,
  SectionBox,
  SimpleTable,
  StatusLabel,
} from '@kinvolk/headlamp-plugin/lib/CommonComponents';
import { Box, Link as WebLink } from '@mui/material';
import { useEffect, useState } from 'react';
import { NONE, plain, severity } from './figures';
import { Condition } from './resources';
import { address, hint } from './runbook';

const CLOCK_MS = 1000;

/** Returns the time, again each second, so that ages grow while a page is open. */
export function useNow(): number {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const clock = setInterval(() => setNow(Date.now()), CLOCK_MS);
    return () => clearInterval(clock);
  }, []);
  return now;
}

export function State({ word }: { word: string | undefined }) {
  return word ? (
    <StatusLabel status={severity(word.split(',')[0])}>{plain(word)}</StatusLabel>
  ) : (
    NONE
  );
}

export function When({ time }: { time: string | undefined }) {
  return time ? <DateLabel date={time} format="mini" /> : NONE;
}

/** Shows a reason, which leads to its page of the runbook. */
export function Reason({ word }: { word: string | undefined }) {
  const page = address(word);
  return page ? (
    <WebLink href={page} target="_blank" rel="noopener noreferrer">
      {word}
    </WebLink>
  ) : (
    <>{plain(word)}</>
  );
}

/** Shows a message, which may have lines. */
export function Message({ text }: { text: string | undefined }) {
  return <Box sx={{ whiteSpace: 'pre-wrap' }}>{plain(text)}</Box>;
}

/** Shows each condition with its reason and what to do about it. */
export function Conditions({ conditions }: { conditions: Condition[] }) {
  return (
    <SectionBox title="Conditions">
      <SimpleTable
        emptyMessage="The operator has not seen it yet."
        data={conditions}
        columns={[
          { label: 'Type', getter: (one: Condition) => one.type },
          { label: 'Status', getter: (one: Condition) => one.status },
          { label: 'Reason', getter: (one: Condition) => <Reason word={one.reason} /> },
          {
            label: 'Message',
            gridTemplate: '3fr',
            getter: (one: Condition) => <Message text={one.message} />,
          },
          {
            label: 'What to do',
            gridTemplate: '2fr',
            getter: (one: Condition) => hint(one.reason) ?? NONE,
          },
          { label: 'Since', getter: (one: Condition) => <When time={one.lastTransitionTime} /> },
        ]}
      />
    </SectionBox>
  );
}

/** Draws a share of 100. */
export function Bar({ percent }: { percent: number }) {
  return (
    <Box sx={{ my: '0.4em', minWidth: '8em', backgroundColor: 'action.hover' }}>
      <Box sx={{ width: `${percent}%`, height: '0.8em', backgroundColor: 'primary.main' }} />
    </Box>
  );
}
